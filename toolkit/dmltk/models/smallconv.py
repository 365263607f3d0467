"""A small convolutional network for quick runs and tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from msgspec import Meta
from torch import nn

from dmltk.models.source import Source

__all__ = ["smallconv"]


def smallconv(
    *, width: Annotated[int, Meta(ge=1)] = 16, channels: Annotated[int, Meta(ge=1)] = 3
) -> Source:
    """Three convolutional blocks, for pictures of any size.

    Each block is a 3×3 convolution, batch norm, ReLU and a 2×2 maximum.

    Args:
        width: channels of the first block; the others have twice and four times as many.
        channels: channels of a picture.
    """
    widths = [channels, width, 2 * width, 4 * width]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
        ]
    return Source(
        nn.Sequential(*layers),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        num_features=4 * width,
    )


smallconv.train_dim = 64  # type: ignore[attr-defined]
