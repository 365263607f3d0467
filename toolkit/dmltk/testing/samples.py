"""Tiny models, pictures and embeddings that the checks use."""

from __future__ import annotations

from collections.abc import Callable

import timm.layers
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dmltk.batch import Batch, Reference
from dmltk.data.split import Memory, Split
from dmltk.models import Embedder, Source
from dmltk.testing.part import CLASSES, DIM, SIZE

__all__ = ["MODELS", "Tiny", "batch", "embeddings", "model", "split"]

WIDTH = 8


class Tiny(nn.Module):
    """A stem, a body and a neck, one of them with a normaliser.

    Args:
        body: after the stem, on maps of `WIDTH` channels.
        neck: after pooling, on `WIDTH` features.
        checkpointing: recompute the body in backward.
    """

    def __init__(self, body: nn.Module, neck: nn.Module, checkpointing: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1)
        self.body, self.neck = body, neck
        self.checkpointing = checkpointing

    def forward(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, WIDTH)."""
        hidden = torch.tanh(self.stem(pictures))
        if self.checkpointing and self.training:
            hidden = checkpoint(self.body, hidden, use_reentrant=False)
        else:
            hidden = self.body(hidden)
        found: Tensor = self.neck(hidden.mean((2, 3)))
        return found


class _Tokens(nn.Module):
    """Layer norm over the channels of a map."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, maps: Tensor) -> Tensor:
        found: Tensor = self.norm(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return found


def _convolution(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), norm, nn.Tanh())


MODELS: dict[str, Callable[[], tuple[nn.Module, nn.Module]]] = {
    "bn2d": lambda: (_convolution(nn.BatchNorm2d(WIDTH)), nn.Identity()),
    "bnact2d": lambda: (
        nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 1), timm.layers.BatchNormAct2d(WIDTH)),
        nn.Identity(),
    ),
    "bn1d": lambda: (nn.Tanh(), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))),
    "ln": lambda: (_Tokens(), nn.Identity()),
    "none": lambda: (_convolution(nn.Identity()), nn.Identity()),
}
"""Body and neck by which normaliser they hold."""


def model(name: str = "bn2d", *, seed: int = 0, checkpointing: bool = False) -> Embedder:
    """A tiny embedder of pictures (N, 3, H, W) of any size, `DIM` long, in eval mode.

    Args:
        name: of :data:`MODELS`.
        seed: of its weights; running statistics and affine parts are drawn too.
        checkpointing: recompute its body in backward.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Embedder(
            Source(
                Tiny(*MODELS[name](), checkpointing),
                mean=(0.5, 0.5, 0.5),
                std=(0.25, 0.25, 0.25),
                num_features=WIDTH,
                size=SIZE,
            ),
            embed={"dim": DIM},
        )
        for module in made.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.2)
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
                nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    return made.eval()


def batch(
    count: int = 12,
    *,
    embed: nn.Module | None = None,
    seed: int = 0,
    size: int = SIZE,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """Pictures of `CLASSES` classes in turn, those of a class alike.

    Args:
        count: of pictures.
        embed: where given, its embeddings of 24 such pictures are the reference, these first.
        seed: of the pictures.
        size: their side.
        dtype: of the pictures.
    """
    whole = max(count, 24)
    draws = torch.Generator().manual_seed(seed)
    bases = torch.rand(CLASSES, 3, size, size, generator=draws, dtype=torch.float64)
    noise = torch.rand(whole, 3, size, size, generator=draws, dtype=torch.float64) - 0.5
    labels = torch.arange(whole) % CLASSES
    images = (bases[labels] + 0.4 * noise).clamp(0, 1).to(dtype)
    reference = None
    if embed is not None:
        weights = next(embed.parameters()).dtype
        with torch.no_grad():
            reference = Reference(embed(images.to(weights)).float(), labels)
    return Batch(images[:count], labels[:count], torch.arange(count), reference)


def embeddings(count: int = 12, *, seed: int = 0, dim: int = DIM) -> tuple[Tensor, Tensor]:
    """Unit embeddings (count, dim) of `CLASSES` classes in turn, with their labels."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    centres = torch.randn(CLASSES, dim, generator=draws)
    z = centres[labels] + torch.randn(count, dim, generator=draws)
    return nn.functional.normalize(z, dim=1), labels


def split(count: int = 12) -> Split:
    """A split of `count` tiny pictures."""
    made = batch(count)
    assert made.labels is not None
    return Split(Memory(made.images), made.labels, [f"c{i}" for i in range(CLASSES)])
