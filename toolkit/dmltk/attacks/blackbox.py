"""Solvers that need no gradient: they ask for losses only, and their budget is in queries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks.probe import Probe
from dmltk.attacks.solvers import Best, Radius, Size, first
from dmltk.attacks.threat import Threat
from dmltk.errors import UserError

Queries = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Where, in ten-thousandths of the budget, the squares' share of the picture is halved."""


@dataclass(frozen=True)
class Nes:
    """Steps along a gradient that is estimated from losses; each picture's best iterate.

    g = mean over directions u ~ N(0, 1) of (loss(x' + sigma u) - loss(x' - sigma u)) / (2 sigma) u
    and x' = project(x' - alpha * steepest(g)). Pictures asked about may leave the ball, never the
    box. A step costs `population` queries and one for its iterate's own loss, the start costs one,
    and as many steps are taken as `queries` pay for. The pictures of a batch share the directions,
    so from `start=0` none depends on its batch mates.

    Args:
        queries: losses asked for a picture, at most; 0 returns the very same pictures.
        population: losses asked for one estimate, an even number.
        sigma: how far from x' they are asked, in pixel units; a model of few bits needs more.
        alpha: length of a step in pixel units; none means `gain` * eps / steps.
        gain: the length of all steps together, as a multiple of eps, where `alpha` is none.
        start: radius of the random start in pixel units, at most eps; none means eps, 0 starts
            from the pictures themselves, as the paper does.
        grid: side of the square grid on which directions are drawn, each number spread over its
            block of pixels; none draws one for every pixel.

    Source: Ilyas et al. 2018, Black-box adversarial attacks with limited queries and information
    """

    queries: Queries = 1000
    population: Annotated[int, Meta(ge=2, multiple_of=2)] = 50
    sigma: Size = 1e-3
    alpha: Size | None = None
    gain: Size = 2.5
    start: Radius | None = None
    grid: Count | None = None
    select: ClassVar[str] = "best"
    gradient_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.population < 2 or self.population % 2:
            raise UserError(f"population={self.population}: directions go in pairs, give 2, 4, …")
        if self.queries and self.steps < 1:
            raise UserError(
                f"queries={self.queries} pay for no step: give {self.population + 2} or more, "
                f"or a population below {self.population}"
            )

    @property
    def steps(self) -> int:
        """How many the budget pays for."""
        return (self.queries - 1) // (self.population + 1) if self.queries else 0

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) inside the threat."""
        if self.steps == 0:
            return images
        alpha = self.gain * threat.largest / self.steps if self.alpha is None else self.alpha
        adv, best = first(images, threat, self.start, generator), Best()
        best.see(adv, probe.loss(adv))
        for _ in range(self.steps):
            grad = antithetic(probe.loss, adv, self._directions(adv, generator), self.sigma)
            adv = threat.project(adv - alpha * threat.steepest(grad), images)
            best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images

    def _directions(self, images: Tensor, generator: Generator) -> Iterable[Tensor]:
        """Each (C, H, W), one for all pictures."""
        channels, *size = images.shape[1:]
        drawn = size if self.grid is None else [self.grid, self.grid]
        for _ in range(self.population // 2):
            u = torch.randn(channels, *drawn, dtype=images.dtype, generator=generator)
            if drawn != size:
                u = torch.nn.functional.interpolate(u[None], size, mode="nearest-exact")[0]
            yield u.to(images.device)


def antithetic(
    loss: Callable[[Tensor], Tensor], images: Tensor, directions: Iterable[Tensor], sigma: float
) -> Tensor:
    """The mean over directions u of (loss(x + sigma u) - loss(x - sigma u)) / (2 sigma) u.

    The points asked about are cut by the box: on the way out of it a loss is taken at the edge.

    Args:
        loss: pictures (N, C, H, W) -> (N,).
        images: (N, C, H, W).
        directions: each of a shape that broadcasts with the pictures.
        sigma: how far along them.
    """
    total, count = torch.zeros_like(images), 0
    for u in directions:
        ahead, behind = (loss((images + step * u).clamp(0, 1)) for step in (sigma, -sigma))
        total += (ahead - behind).view(-1, 1, 1, 1) / (2 * sigma) * u
        count += 1
    return total / count


@dataclass(frozen=True)
class Square:
    """Random squares, each kept where it lowers a picture's loss.

    Every pixel stays at an end of what is allowed to it: x' starts as vertical stripes of x + eps
    and x - eps, and a query sets one square of each channel to one of the two. The squares' area
    is a share p of the picture, which is halved after 10, 50, 200, 500, 1000, 2000, 4000, 6000 and
    8000 ten-thousandths of the budget. The pictures of a batch share stripes and squares, so none
    depends on its batch mates. Wants norm `linf` or `none`.

    Args:
        queries: losses asked for a picture; 0 returns the very same pictures.
        p: share of the picture that the first squares cover; the paper takes .05 for undefended
            models of large pictures and .8 for robust ones.

    Source: Andriushchenko et al. 2020, Square attack, algorithms 1 and 2
    """

    queries: Queries = 1000
    p: Annotated[float, Meta(gt=0, le=1)] = 0.8
    select: ClassVar[str] = "best"
    gradient_free: ClassVar[bool] = True

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) inside the threat."""
        if threat.norm == "l2":
            raise UserError("square sets pixels to their bounds: take norm=linf, or nes for l2")
        if self.queries == 0:
            return images
        high, low = (threat.project(images + a, images) for a in (threat.largest, -threat.largest))
        channels, height, width = images.shape[1:]
        best, stripes = Best(), _coins((channels, 1, width), images, generator)
        adv = torch.where(stripes, high, low)
        best.see(adv, probe.loss(adv))
        for query in range(self.queries - 1):
            side = square_side(self.p, query * 10_000 // self.queries, height, width)
            top, left = (
                int(torch.randint(length - side + 1, (), generator=generator))
                for length in (height, width)
            )
            window = (..., slice(top, top + side), slice(left, left + side))
            up = _coins((channels, 1, 1), images, generator)
            adv = best.images.clone()
            adv[window] = torch.where(up, high[window], low[window])
            best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images


def square_side(p: float, spent: int, height: int, width: int) -> int:
    """The side of a square, in pixels, once `spent` ten-thousandths of the budget are gone."""
    share = p / 2 ** bisect_left(HALVINGS, spent)
    return min(max(round((share * height * width) ** 0.5), 1), height, width)


@dataclass(frozen=True)
class Noise:
    """Pictures drawn at random: what any attack must beat; the best of several for each picture.

    Draws are made try after try and picture after picture, so the first try of a batch's first
    picture is the one it has alone.

    Args:
        tries: draws a picture, of which the one of lowest loss is returned; a single one is
            returned without asking for its loss.
        draw: `uniform` draws evenly from the ball; `sign` moves all pixels equally far, each up
            or down, to the edge of the ball; both are then cut by the box.

    Source: dmltk; the random start of Madry et al. 2018 without the steps after it
    """

    tries: Count = 1
    draw: Literal["uniform", "sign"] = "uniform"
    select: ClassVar[str] = "best"
    gradient_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise UserError(f"tries={self.tries}: at least one is needed")

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) inside the threat."""
        if self.tries == 1:
            return self._try(images, threat, generator)
        best = Best()
        for _ in range(self.tries):
            adv = self._try(images, threat, generator)
            best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images

    def _try(self, images: Tensor, threat: Threat, generator: Generator) -> Tensor:
        if self.draw == "uniform":
            return threat.random(images, threat.largest, generator)
        signs = _coins(images.shape, images, generator).to(images.dtype) * 2 - 1
        return threat.project(images + threat.largest * signs, images)


def _coins(shape: Iterable[int], images: Tensor, generator: Generator) -> Tensor:
    """True or False, each with probability one half, on the device of the pictures."""
    return torch.randint(2, tuple(shape), generator=generator).bool().to(images.device)
