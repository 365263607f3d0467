"""What an attacker may do to a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.errors import UserError

ROUNDING = 2e-6
"""How far a found picture may leave the ball or [0, 1] before its solver is blamed."""


@dataclass(frozen=True)
class Threat:
    """A ball around each picture, cut by the box [0, 1].

    Args:
        eps: radius of the ball in pixel units, so 8/255 is eight grey levels; in [0, 1].
        norm: how a change is measured; `linf` is the largest change of any pixel.
    """

    eps: Annotated[float, Meta(ge=0, le=1)] = 8 / 255
    norm: Literal["linf"] = "linf"

    def __post_init__(self) -> None:
        if not 0 <= self.eps <= 1:
            raise UserError(f"eps={self.eps:g} is outside [0, 1]: give it in pixel units, as 8/255")

    def project(self, adv: Tensor, images: Tensor) -> Tensor:
        """The nearest allowed pictures: first into the ball, then into the box.

        Args:
            adv: pictures anywhere, of a shape that `images` broadcasts with.
            images: (N, C, H, W), the centres of the balls.
        """
        return (images + (adv - images).clamp(-self.eps, self.eps)).clamp(0, 1)

    def random(self, images: Tensor, radius: float, generator: Generator) -> Tensor:
        """Pictures drawn evenly from the ball of `radius` around `images`, cut by the box."""
        unit = torch.rand(images.shape, dtype=images.dtype, generator=generator)
        return self.project(images + (unit * 2 - 1).mul(radius).to(images.device), images)

    def steepest(self, grad: Tensor) -> Tensor:
        """The step of size one that climbs `grad` fastest; zero where the gradient is zero."""
        return grad.sign()

    def allows(self, adv: Tensor, images: Tensor) -> bool:
        """Whether `adv` lies in the ball and in the box, but for rounding."""
        low, high = adv.aminmax()
        change = (adv - images).abs().amax()
        far = torch.stack([-low, high - 1, change - self.eps]).amax()
        return bool(far <= ROUNDING)
