"""Solvers that move pixels instead of changing them: rotations and shifts, and flows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor
from torch.nn import functional

from dmltk.attacks.probe import Probe
from dmltk.attacks.solvers import Best, Radius, Size, Steps
from dmltk.attacks.threat import Threat
from dmltk.errors import UserError

Count = Annotated[int, Meta(ge=1)]
Padding = Literal["zeros", "border"]


@dataclass(frozen=True)
class Rotation:
    """Rotations and shifts on a grid; each picture's worst, the picture itself among them.

    Every picture is turned about its centre, then shifted, and sampled bilinearly; no gradient is
    asked for. `angles` * `steps`^2 forward passes where both are odd. Wants `norm=none`.

    Args:
        degrees: largest angle, either way.
        angles: how many angles, evenly spaced; 1 means no rotation.
        shift: largest shift along each side, either way, as a share of that side.
        steps: how many shifts along each side, evenly spaced; 1 means none.
        padding: what comes in from outside: `zeros` black, `border` the nearest pixel.

    Source: Engstrom et al. 2019, Exploring the landscape of spatial robustness
    """

    degrees: Annotated[float, Meta(ge=0, le=180)] = 30.0
    angles: Count = 31
    shift: Annotated[float, Meta(ge=0, le=1)] = 0.1
    steps: Count = 5
    padding: Padding = "zeros"
    select: ClassVar[str] = "best"
    gradient_free: ClassVar[bool] = True
    needs_norm: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if self.angles < 1 or self.steps < 1:
            raise UserError(
                f"angles={self.angles}, steps={self.steps}: a grid has at least one point each way"
            )

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) in [0, 1]."""
        best = Best()
        best.see(images, probe.loss(images))
        for degrees, right, down in self.grid():
            adv = moved(images, degrees, (right, down), self.padding)
            best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images

    def grid(self) -> Iterator[tuple[float, float, float]]:
        """Degrees, shift to the right and shift down, all but what moves nothing."""
        shifts = _axis(self.shift, self.steps)
        for move in itertools.product(_axis(self.degrees, self.angles), shifts, shifts):
            if any(move):
                yield move


@dataclass(frozen=True)
class Stadv:
    """Flows: each pixel is fetched from a little elsewhere; each picture's best iterate.

    x'(p) = x(p + f(p)), bilinear, with f found by Adam on goal's loss + tau * variation(f), the
    variation being the mean over pixels p of the sum over the neighbours q of p of
    ||f(p) - f(q)||. Adam works on each number by itself, so no picture depends on its batch
    mates; the paper takes L-BFGS, and the sum over pixels. The flow itself has no bound, only its
    cost. Wants `norm=none`.

    Args:
        steps: how many; 0 returns the very same pictures.
        tau: weight of the flow's variation; the paper's .05 at 28 x 28 pixels is 39 here.
        lr: length of a step, in pixels.
        start: largest random flow at the start, in pixels along each side; 0 starts from the
            pictures themselves.

    Source: Xiao et al. 2018, Spatially transformed adversarial examples, eq. 1, 2 and 4
    """

    steps: Steps = 50
    tau: Radius = 1.0
    lr: Size = 0.05
    start: Radius = 0.0
    select: ClassVar[str] = "best"
    needs_norm: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UserError(f"steps={self.steps} is below 0")

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) in [0, 1]."""
        if self.steps == 0:
            return images
        best, adv = Best(), images
        if self.start:
            best.see(images, probe.loss(images))
        flow = self._first(images, generator).requires_grad_()
        adam = torch.optim.Adam([flow], self.lr)
        for step in range(self.steps):
            warped = warp(images, flow)
            if step or self.start:
                adv = warped.detach().clamp(0, 1)
            loss, grad = probe.gradient(adv)
            best.see(adv, loss)
            cost = self.tau * variation(flow).sum()
            (flow.grad,) = torch.autograd.grad([warped, cost], flow, [grad, torch.ones_like(cost)])
            adam.step()
        adv = warp(images, flow.detach()).clamp(0, 1)
        best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images

    def _first(self, images: Tensor, generator: Generator) -> Tensor:
        """(N, 2, H, W), the same for all pictures."""
        shape = (1, 2, *images.shape[2:])
        drawn = torch.rand(shape, dtype=images.dtype, generator=generator) * 2 - 1
        return (drawn * self.start).to(images.device).repeat(len(images), 1, 1, 1)


def moved(
    images: Tensor, degrees: float, shift: tuple[float, float], padding: Padding = "zeros"
) -> Tensor:
    """Pictures turned about their centre, then shifted.

    Args:
        images: (N, C, H, W) in [0, 1].
        degrees: clockwise, as the picture is seen.
        shift: to the right and down, as shares of the picture's sides.
        padding: what comes in from outside: black or the nearest pixel.
    """
    height, width = images.shape[2:]
    x, y = _places(images)
    x, y = x - shift[0] * width, y - shift[1] * height
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return _sampled(images, cos * x + sin * y, cos * y - sin * x, padding).clamp(0, 1)


def warp(images: Tensor, flow: Tensor) -> Tensor:
    """Pictures whose pixel p is fetched from p + flow(p), the border's from outside it.

    Args:
        images: (N, C, H, W).
        flow: (N, 2, H, W) in pixels, to the right and down.
    """
    x, y = _places(images)
    return _sampled(images, x + flow[:, 0], y + flow[:, 1], "border")


def variation(flow: Tensor) -> Tensor:
    """(N,) the mean over pixels of how far their flow differs from that of each neighbour.

    Args:
        flow: (N, 2, H, W) in pixels.
    """
    down, right = (torch.linalg.vector_norm(flow.diff(dim=d), dim=1).sum((1, 2)) for d in (2, 3))
    return 2 * (down + right) / flow[0, 0].numel()


def _axis(limit: float, count: int) -> list[float]:
    """Evenly spaced numbers from -limit to limit; only 0 where there is one."""
    if count == 1 or limit == 0:
        return [0.0]
    return [limit * (2 * i - (count - 1)) / (count - 1) for i in range(count)]


def _places(images: Tensor) -> tuple[Tensor, Tensor]:
    """x (1, 1, W) and y (1, H, 1) of the pixels' centres, in pixels from the picture's centre."""
    height, width = images.shape[2:]
    x, y = (
        torch.arange(side, dtype=images.dtype, device=images.device) - (side - 1) / 2
        for side in (width, height)
    )
    return x.view(1, 1, -1), y.view(1, -1, 1)


def _sampled(images: Tensor, x: Tensor, y: Tensor, padding: Padding) -> Tensor:
    """Pictures fetched from places x and y, given in pixels from the picture's centre."""
    count, _, height, width = images.shape
    x, y = torch.broadcast_tensors(x * (2 / width), y * (2 / height))
    places = torch.stack([x, y], 3).expand(count, -1, -1, -1)
    return functional.grid_sample(images, places, "bilinear", padding, align_corners=False)
