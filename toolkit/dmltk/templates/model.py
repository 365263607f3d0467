"""A model source for dmltk."""

from typing import Annotated

from msgspec import Meta
from torch import nn

from dmltk.models import Source


def example(*, width: Annotated[int, Meta(ge=1)] = 16) -> Source:
    """Two convolutions with batch norm, for pictures of any size.

    Args:
        width: channels of the first; the second has twice as many.
    """
    layers = nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
    )
    return Source(layers, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
