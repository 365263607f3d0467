"""What an attacker may do to a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.errors import UserError

ROUNDING = 2e-6
"""How far a found picture may leave the ball or [0, 1] before its solver is blamed."""

SLACK = 2e-5
"""How far, in grey levels, a level may lie outside the ball and still count as inside."""

Bound = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class Threat:
    """A ball around each picture, cut by the box [0, 1].

    Lengths of steps and starts are in units of the ball's own norm: with one eps per channel, a
    step of length a moves channel c by a * eps_c / max(eps).

    Args:
        eps: radius of the ball in pixel units, so 8/255 is eight grey levels; at most 1 for
            `linf`, any number for `l2`; a list gives `linf` one radius per channel.
        norm: how a change is measured: `linf` is the largest change of any pixel, `l2` the
            Euclidean length of a picture's change; `none` leaves only the box, whatever eps.
        quantize: 8 rounds what an attack found to k/255 inside the ball, as saving in 8 bit
            would, and goes on with that; a pixel whose ball holds no such value stays clean.
    """

    eps: Bound | tuple[Bound, ...] = 8 / 255
    norm: Literal["linf", "l2", "none"] = "linf"
    quantize: Literal[8] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.eps, list):
            object.__setattr__(self, "eps", tuple(self.eps))
        channels = isinstance(self.eps, tuple)
        if channels and (self.norm != "linf" or not self.eps):
            raise UserError("a list of eps, one per channel, goes with norm=linf: give one number")
        limit = math.inf if self.norm == "l2" else 1
        for eps in self.eps if isinstance(self.eps, tuple) else (self.eps,):
            if not 0 <= eps <= limit or eps == math.inf:
                raise UserError(
                    f"eps={eps:g} is outside [0, {limit:g}]: give it in pixel units, as 8/255"
                )

    @property
    def largest(self) -> float:
        """The bound as one number: the largest of any channel; 1 with `norm=none`; 0 is 0."""
        largest = max(self.eps) if isinstance(self.eps, tuple) else self.eps
        return float(largest) if self.norm != "none" or largest == 0 else 1.0

    def limit(self, change: Tensor) -> Tensor:
        """The nearest change inside the ball.

        Args:
            change: (N, C, H, W), or (1, C, H, W) for one change of many pictures.
        """
        if self.norm == "none":
            return change
        if self.norm == "l2":
            length = _length(change).clamp_min(torch.finfo(change.dtype).tiny)
            return change * (self.largest / length).clamp_max(1)
        bound: Any = self._bound(change)
        return change.clamp(-bound, bound)

    def project(self, adv: Tensor, images: Tensor) -> Tensor:
        """Allowed pictures near others: first into the ball, then into the box.

        Args:
            adv: pictures anywhere, of a shape that `images` broadcasts with.
            images: (N, C, H, W), the centres of the balls.
        """
        return (images + self.limit(adv - images)).clamp(0, 1)

    def random(self, images: Tensor, radius: float, generator: Generator) -> Tensor:
        """Pictures drawn evenly from the ball of `radius` around `images`, cut by the box."""
        draw = self._from_l2_ball if self.norm == "l2" else self._from_cube
        return self.project(images + draw(images, radius, generator).to(images.device), images)

    def _from_cube(self, images: Tensor, radius: float, generator: Generator) -> Tensor:
        unit = torch.rand(images.shape, dtype=images.dtype, generator=generator)
        return (unit * 2 - 1).mul(radius) * self._share(unit)

    def _from_l2_ball(self, images: Tensor, radius: float, generator: Generator) -> Tensor:
        """The first d coordinates of an even draw from the sphere in d + 2 dimensions."""
        pixels = images[0].numel()
        sphere = torch.stack(
            [torch.randn(pixels + 2, dtype=images.dtype, generator=generator) for _ in images]
        )
        inside = sphere / torch.linalg.vector_norm(sphere, dim=1, keepdim=True)
        return inside[:, :pixels].view(images.shape).mul(radius)

    def steepest(self, grad: Tensor) -> Tensor:
        """The step of length one that climbs `grad` fastest; zero where the gradient is zero."""
        if self.norm != "l2":
            return grad.sign() * self._share(grad)
        tiny = torch.finfo(grad.dtype).tiny
        scaled = grad / grad.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(tiny)
        return scaled / _length(scaled).clamp_min(tiny)

    def quantized(self, adv: Tensor, images: Tensor) -> Tensor:
        """Allowed pictures rounded to k/255 inside the ball; as they are without `quantize`.

        For `l2` each change is rounded towards the clean picture, so it never grows.
        """
        if self.quantize is None:
            return adv
        clean, found = images.double(), adv.double()
        if self.norm == "l2":
            low, high = torch.minimum(clean, found), torch.maximum(clean, found)
        elif self.norm == "none":
            low, high = torch.zeros_like(found), torch.ones_like(found)
        else:
            bound = self._bound(found)
            low, high = (clean - bound).clamp_min(0), (clean + bound).clamp_max(1)
        first, last = (low * 255 - SLACK).ceil(), (high * 255 + SLACK).floor()
        levels = torch.minimum(torch.maximum((found * 255).round(), first), last)
        return torch.where(first <= last, (levels / 255).to(adv.dtype), images)

    def allows(self, adv: Tensor, images: Tensor) -> bool:
        """Whether `adv` lies in the ball and in the box, but for rounding."""
        low, high = adv.aminmax()
        far = [-low, high - 1]
        change = adv - images
        if self.norm == "linf":
            far.append((change.abs() - self._bound(change)).amax())
        elif self.norm == "l2":
            rounding = torch.finfo(adv.dtype).eps * adv[0].numel() ** 0.5
            far.append(_length(change).amax() - self.largest * (1 + ROUNDING) - rounding)
        return bool(torch.stack(far).amax() <= ROUNDING)

    def _bound(self, like: Tensor) -> Tensor | float:
        """The radius, as a number or a tensor that broadcasts with pictures.

        Raises:
            UserError: where the pictures have another number of channels.
        """
        if not isinstance(self.eps, tuple):
            return self.eps
        if len(self.eps) != like.shape[1]:
            raise UserError(
                f"eps has {len(self.eps)} numbers and the pictures have {like.shape[1]} channels: "
                "give one number per channel, or one for all"
            )
        return like.new_tensor(self.eps).view(1, -1, 1, 1)

    def _share(self, like: Tensor) -> Tensor | float:
        """Each channel's radius as a share of the largest."""
        if not isinstance(self.eps, tuple) or self.largest == 0:
            return 1.0
        return self._bound(like) / self.largest


def normalized(eps: float, std: Sequence[float]) -> tuple[float, ...]:
    """The bound per channel, in pixel units, of one that is meant for normalized pictures.

    eps_c = eps * std_c

    Args:
        eps: bound on (pictures - mean) / std.
        std: the deviation by which each channel is divided.
    """
    return tuple(eps * deviation for deviation in std)


def _length(change: Tensor) -> Tensor:
    """(N, 1, 1, 1) Euclidean lengths."""
    return torch.linalg.vector_norm(change, dim=(1, 2, 3), keepdim=True)
