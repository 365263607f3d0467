"""Auto-PGD: a descent that chooses its own step lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from dmltk.attacks.probe import Probe
from dmltk.attacks.solvers import Radius, Steps, first
from dmltk.attacks.threat import Threat
from dmltk.errors import UserError

SHARE = 0.75
"""How much of a step is the new one; the rest goes on as the step before."""

RHO = 0.75
"""The share of steps that must lower the loss between two checkpoints."""


@dataclass(frozen=True)
class Apgd:
    """Auto-PGD: momentum steps that halve where the loss stalls; the best iterate.

    t = project(x' - a * steepest(gradient)); x' = project(x' + .75 (t - x') + .25 (x' - the one
    before)), with a = 2 eps at first. At a checkpoint a picture halves its a and goes on from its
    best iterate where fewer than .75 of the steps since the last one lowered its loss, or where
    its a was not halved there and its best loss is still the same. Checkpoints lie at .22, .41,
    .57, .70, .80, .87, .93 and .99 of the steps.

    Args:
        steps: how many; 0 returns the very same pictures.
        start: radius of the random start in pixel units, at most eps; none means eps, 0 starts
            from the pictures themselves.

    Source: Croce and Hein 2020, Reliable evaluation of adversarial robustness, algorithm 1
    """

    steps: Steps = 100
    start: Radius | None = None
    select: ClassVar[str] = "best"

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UserError(f"steps={self.steps} is below 0")

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) inside the threat."""
        if self.steps == 0:
            return images
        adv = before = first(images, threat, self.start, generator)
        loss, grad = probe.gradient(adv)
        if loss.ndim == 0:
            raise UserError("apgd needs a loss per picture; this goal's is one for the whole batch")
        pace = _Pace(adv, loss, grad, 2 * threat.largest)
        stops = checkpoints(self.steps)
        for step in range(1, self.steps + 1):
            share = SHARE if step > 1 else 1.0
            ahead = threat.project(adv - pace.length * threat.steepest(grad), images)
            moved = adv + share * (ahead - adv) + (1 - share) * (adv - before)
            before, adv = adv, threat.project(moved, images)
            last = loss
            if step == self.steps:
                loss = probe.loss(adv)
            else:
                loss, grad = probe.gradient(adv)
            pace.see(adv, loss, grad, last)
            if step in stops:
                adv, loss, grad = pace.check(adv, loss, grad)
        probe.remember(pace.images, pace.loss)
        return pace.images


class _Pace:
    """Each picture's step length, and its best iterate with loss and gradient."""

    def __init__(self, images: Tensor, loss: Tensor, grad: Tensor, length: float) -> None:
        self.images, self.loss, self.grad = images, loss, grad
        self.length = torch.full_like(images[:, :1, :1, :1], length)
        self.lower = torch.zeros_like(loss)
        self.steps = 0
        self.checked = loss
        self.halved = torch.zeros_like(loss, dtype=torch.bool)

    def see(self, images: Tensor, loss: Tensor, grad: Tensor, last: Tensor) -> None:
        """Takes note of an iterate, and of whether its loss is lower than the last one's."""
        self.steps += 1
        self.lower += loss < last
        better = loss < self.loss
        self.images = torch.where(_wide(better), images, self.images)
        self.grad = torch.where(_wide(better), grad, self.grad)
        self.loss = torch.where(better, loss, self.loss)

    def check(self, images: Tensor, loss: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Halves the steps of pictures that stall; those go on from their best iterate."""
        slow = self.lower < RHO * self.steps
        stuck = ~self.halved & (self.loss == self.checked)
        self.halved, self.checked = slow | stuck, self.loss
        self.lower, self.steps = torch.zeros_like(self.lower), 0
        back = _wide(self.halved)
        self.length = torch.where(back, self.length / 2, self.length)
        return (
            torch.where(back, self.images, images),
            torch.where(self.halved, self.loss, loss),
            torch.where(back, self.grad, grad),
        )


def checkpoints(steps: int) -> list[int]:
    """The steps after which lengths are looked at: ceil(p_j * steps) for each p_j below 1.

    p_0 = 0, p_1 = .22, p_{j+1} = p_j + max(p_j - p_{j-1} - .03, .06), in hundredths.
    """
    found, before, share = [], 0, 22
    while share < 100:
        found.append(-(-share * steps // 100))
        before, share = share, share + max(share - before - 3, 6)
    return found


def _wide(mask: Tensor) -> Tensor:
    return mask.view(-1, 1, 1, 1)
