"""The embedder: pictures in [0, 1] to unit-length embeddings, through named heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmltk.errors import UserError, unknown
from dmltk.models.source import Pool, Source, device_of, dtype_of, examined, pooled_by

__all__ = ["Embedder", "Head"]

BACKBONE, HEADS = "backbone.", "heads."


class Head(nn.Sequential):
    """A named projection of the pooled feature.

    Args:
        in_features: length of the pooled feature.
        pool: how the feature map is pooled before it; `avgmax` is the sum of both.
        dim: length of the embedding; 0 is the pooled feature itself.
        hidden: width of a hidden layer (Linear, ReLU, Linear); 0 is one Linear.
        unit: whether embeddings have unit length.
        bn: whether a batch norm stands before the hidden layer's ReLU.

    Raises:
        UserError: hidden without dim, or bn without hidden.
    """

    def __init__(
        self,
        in_features: int,
        *,
        pool: Pool = "avg",
        dim: int = 0,
        hidden: int = 0,
        unit: bool = True,
        bn: bool = False,
    ) -> None:
        if hidden and not dim:
            raise UserError(f"a head with hidden={hidden} needs dim, the length it projects to")
        if bn and not hidden:
            raise UserError("a head with bn=true needs hidden: its batch norm stands in between")
        if not dim:
            layers: list[nn.Module] = []
        elif not hidden:
            layers = [nn.Linear(in_features, dim)]
        else:
            norm = [nn.BatchNorm1d(hidden)] if bn else []
            layers = [nn.Linear(in_features, hidden), *norm, nn.ReLU(), nn.Linear(hidden, dim)]
        super().__init__(*layers)
        self.pool, self.unit = pool, unit
        self.args = {"pool": pool, "dim": dim, "hidden": hidden, "unit": unit, "bn": bn}
        self.out_features = dim or in_features

    def forward(self, pooled: Tensor) -> Tensor:
        """Pooled features (N, in_features) to embeddings (N, out_features) of the same type."""
        projected = super().forward(pooled).to(pooled.dtype)
        return F.normalize(projected, dim=1) if self.unit else projected


class Embedder(nn.Module):
    """Pictures (N,C,H,W) in [0, 1] to embeddings (N,D), unit length unless `unit=False`.

    Its state dict has the stock keys of the backbone, and those of the heads (`embed.…`).

    Args:
        source: the backbone and how it is used.
        output: the key or position of what the model returns that is the feature.
        embed: arguments of the head `embed`, those of :class:`Head`.

    Attributes:
        origin: spec of the model that a run saved, where it comes from one.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, source: Source, *, output: str = "", embed: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.source = examined(source, output)
        self.output = output
        self.origin = ""
        self.backbone = source.module
        self.heads = nn.ModuleDict()
        for name, channels in (("mean", source.mean), ("std", source.std)):
            row = torch.tensor(channels, dtype=torch.float64).view(1, -1, 1, 1)
            row = row.to(device_of(self.backbone), dtype_of(self.backbone))
            self.register_buffer(name, row, persistent=False)
        self.add_head("embed", **(embed or {}))

    @property
    def size(self) -> int | None:
        """Side of the pictures the backbone was made for, None for any."""
        return self.source.size

    @property
    def num_features(self) -> int:
        """Length of the pooled feature."""
        return self.source.num_features

    @property
    def embedding_size(self) -> int:
        """Length of an embedding of `embed`."""
        return self.head("embed").out_features

    def add_head(
        self,
        name: str,
        *,
        pool: Pool = "avg",
        dim: int = 0,
        hidden: int = 0,
        unit: bool = True,
        bn: bool = False,
    ) -> None:
        """Add a head; the arguments are those of :class:`Head`.

        Raises:
            UserError: the name is taken, or the model has no such pool.
        """
        children = dict(self.backbone.named_children()) | dict(
            self.backbone.named_parameters(recurse=False)
        )
        if name in self.heads or name in children or hasattr(nn.ModuleDict, name) or "." in name:
            raise UserError(f"a head cannot be called '{name}': the model has or needs that name")
        self.set_head(name, pool=pool, dim=dim, hidden=hidden, unit=unit, bn=bn)

    def set_head(self, name: str, *, pool: Pool = "avg", **args: Any) -> None:
        """Put a new head in the place of one of that name.

        Raises:
            UserError: the model has no such pool.
        """
        if pool not in self.source.pools:
            known = ", ".join(self.source.pools)
            raise UserError(f"head '{name}': this model has no pool={pool}, only {known}")
        head = Head(self.num_features, pool=pool, **args)
        if self.source.start is not None:
            head.apply(self.source.start)
        head = head.to(device_of(self.backbone), dtype_of(self.backbone))
        self.heads[name] = head.train(self.training)

    def forward(
        self, images: Tensor, heads: Sequence[str] | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Embed pictures.

        Args:
            images: (N, C, H, W) in [0, 1]; one channel is repeated to what the backbone takes.
            heads: names of heads; None is `embed` alone.

        Returns:
            (N, D) of the backbone's type; with `heads` a dict of such, from one backbone pass.

        Raises:
            UserError: pictures of another shape, or an unknown head.
        """
        wanted = {name: self.head(name) for name in (("embed",) if heads is None else heads)}
        dtype = dtype_of(self.backbone)
        pictures = (self._shaped(images).to(dtype) - self.mean) / self.std
        found = self.source.picked_features(pictures, self.output)
        pooled = {
            pool: pooled_by(self.source, found, pool).to(dtype)
            for pool in dict.fromkeys(head.pool for head in wanted.values())
        }
        embeddings: dict[str, Tensor] = {
            name: head(pooled[head.pool]) for name, head in wanted.items()
        }
        return embeddings["embed"] if heads is None else embeddings

    def head(self, name: str) -> Head:
        """A head by its name.

        Raises:
            UserError: there is none of that name.
        """
        if name not in self.heads:
            raise unknown("head", name, self.heads)
        head = self.heads[name]
        if not isinstance(head, Head):
            raise UserError(f"head '{name}' was replaced by a {type(head).__name__}")
        return head

    def _shaped(self, images: Tensor) -> Tensor:
        channels = self.mean.shape[1]
        if images.ndim == 4 and images.shape[1] == 1:
            return images.expand(-1, channels, -1, -1)
        if images.ndim != 4 or images.shape[1] != channels:
            raise UserError(
                f"the model takes pictures (N,{channels},H,W), it was given {tuple(images.shape)}"
            )
        return images

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module, with stock backbone keys and those of the heads."""
        found = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        _hoist(found, prefix)
        _hoist(getattr(found, "_metadata", {}), prefix)
        return found

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            stock = key.removeprefix(prefix)
            inner = HEADS if stock.split(".")[0] in self.heads else BACKBONE
            state_dict[prefix + inner + stock] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _hoist(entries: dict[str, Any], prefix: str) -> None:
    """Take the backbone's and the heads' own names out of the keys, in place and in order."""
    for key in [key for key in entries if key.startswith(prefix)]:
        inner = key.removeprefix(prefix)
        stock = inner.removeprefix(BACKBONE if inner.startswith(BACKBONE) else HEADS)
        entries[prefix + stock] = entries.pop(key)
