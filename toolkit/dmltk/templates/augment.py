"""An augment for dmltk."""

from collections.abc import Callable
from typing import Annotated

import torch
from msgspec import Meta
from torch import Generator, Tensor


def example(
    *, strength: Annotated[float, Meta(ge=0, le=1)] = 0.3
) -> Callable[[Tensor, Generator], Tensor]:
    """Brightness: each picture times a number of its own.

    Args:
        strength: numbers are drawn from 1 - strength to 1 + strength.
    """

    def apply(images: Tensor, generator: Generator) -> Tensor:
        drawn = torch.rand(len(images), 1, 1, 1, generator=generator).to(images)
        return (images * (1 + strength * (2 * drawn - 1))).clamp(0, 1)

    return apply
