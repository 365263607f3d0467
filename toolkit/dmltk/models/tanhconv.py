"""A very small network of two convolutions, for 16 by 16 pixels and plain gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from torch import Tensor, nn

from dmltk.errors import UserError
from dmltk.models.source import Source

__all__ = ["tanhconv"]

FEATURES = 16


class Grey(nn.Module):
    """The mean of a picture's channels, (N, C, H, W) to (N, 1, H, W)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(1, keepdim=True)


@dataclass(frozen=True)
class Normal:
    """First weights N(0, gain² / fan-in), biases 0, of a convolution or linear layer."""

    gain: float

    def __call__(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.normal_(module.weight, std=self.gain / math.sqrt(module.weight[0].numel()))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def tanhconv(
    *,
    gain: Annotated[float, Meta(gt=0)] = math.sqrt(2),
    size: Annotated[int, Meta(ge=8)] = 16,
    channels: Annotated[int, Meta(ge=1)] = 3,
) -> Source:
    """Two tanh convolutions with maxima, then sixteen tanh units: no normaliser at all.

    3×3 convolutions to 8 channels, tanh and a 2×2 maximum, twice; a linear layer and tanh to 16
    numbers. Weights, those of heads too, start as N(0, gain² / fan-in), biases at 0. At the
    default gain and lr 1 it stands at the edge of saturation; gain 1 with lr .3 is calm.

    Args:
        gain: of the first weights.
        size: side of the pictures in pixels, a multiple of 4.
        channels: channels of a picture; their mean is taken first.
    """
    if size % 4:
        raise UserError(f"tanhconv takes pictures of a multiple of 4 pixels, got size={size}")

    module = nn.Sequential(
        Grey(),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * (size // 4) ** 2, FEATURES),
        nn.Tanh(),
    ).apply(Normal(gain))
    return Source(
        module,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        size=size,
        num_features=FEATURES,
        pools=("avg",),
        start=Normal(gain),
    )


tanhconv.train_dim = 8  # type: ignore[attr-defined]
