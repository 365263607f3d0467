"""Solvers that descend along the gradient: one loop, four presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks.probe import Probe
from dmltk.attacks.threat import Threat
from dmltk.errors import UserError

Steps = Annotated[int, Meta(ge=0)]
Size = Annotated[float, Meta(gt=0)]
Radius = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class Descent:
    """Steepest steps down the goal's loss, each projected into the threat.

    The steepest step is the sign of the gradient for `linf`, its direction for `l2`.

    Args:
        steps: how many; 0 returns the very same pictures.
        alpha: length of a step in pixel units; none means `gain` * eps / `steps`.
        gain: the length of all steps together, as a multiple of eps, where `alpha` is none.
        start: radius of the random start in pixel units, at most eps; none means eps, 0 starts
            from the pictures themselves.
        decay: share of the sum of earlier gradients that is kept, each divided by its mean
            absolute value; 0 means no momentum.
        select: `last` returns the last iterate; `best` each picture's iterate of lowest loss, the
            start among them, for one forward pass more.
    """

    steps: Steps
    alpha: Size | None = None
    gain: Size = 1.0
    start: Radius | None = 0.0
    decay: Annotated[float, Meta(ge=0)] = 0.0
    select: Literal["best", "last"] = "last"

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UserError(f"steps={self.steps} is below 0")

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) inside the threat."""
        if self.steps == 0:
            return images
        alpha = self.gain * threat.largest / self.steps if self.alpha is None else self.alpha
        adv = first(images, threat, self.start, generator)
        best = Best() if self.select == "best" else None
        momentum = torch.zeros_like(images) if self.decay else None
        for _ in range(self.steps):
            loss, grad = probe.gradient(adv)
            if best is not None:
                best.see(adv, loss)
            if momentum is not None:
                grad = momentum = momentum * self.decay + _unit_mean(grad)
            adv = threat.project(adv - alpha * threat.steepest(grad), images)
        if best is None:
            return adv
        best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images


def first(images: Tensor, threat: Threat, start: float | None, generator: Generator) -> Tensor:
    """The pictures a search starts from; `start` is a radius, eps where it is None."""
    radius = threat.largest if start is None else min(start, threat.largest)
    return threat.random(images, radius, generator) if radius else images


class Best:
    """Each picture's iterate of lowest loss so far."""

    images: Tensor
    loss: Tensor

    def __init__(self) -> None:
        self.empty = True

    def see(self, images: Tensor, loss: Tensor) -> None:
        if loss.ndim == 0:
            raise UserError(
                "a best iterate needs a loss per picture; this goal's is one for the whole batch: "
                "take bim, mim, or pgd with select=last"
            )
        if self.empty:
            self.images, self.loss, self.empty = images, loss, False
            return
        better = loss < self.loss
        self.images = torch.where(better.view(-1, 1, 1, 1), images, self.images)
        self.loss = torch.where(better, loss, self.loss)


def _unit_mean(grad: Tensor) -> Tensor:
    """Each picture's gradient over its mean absolute value; zero where the gradient is zero."""
    mean = grad.abs().mean(dim=(1, 2, 3), keepdim=True)
    return grad / mean.clamp_min(torch.finfo(grad.dtype).tiny)


def fgsm() -> Descent:
    """Fast gradient sign method: one step of length eps from the pictures.

    x' = project(x - eps * sign(gradient of the goal's loss))

    Source: Goodfellow, Shlens and Szegedy 2015, Explaining and harnessing adversarial examples
    """
    return Descent(steps=1)


def bim(steps: Steps = 10, alpha: Size | None = None) -> Descent:
    """Basic iterative method: sign steps from the pictures; the last iterate.

    x' = project(x' - alpha * sign(gradient)), `steps` times from x' = x

    Args:
        steps: how many; 0 returns the very same pictures.
        alpha: length of a step in pixel units; none means eps / steps.

    Source: Kurakin, Goodfellow and Bengio 2017, Adversarial examples in the physical world
    """
    return Descent(steps=steps, alpha=alpha)


def pgd(
    steps: Steps = 10,
    alpha: Size | None = None,
    gain: Size = 2.5,
    start: Radius | None = None,
    select: Literal["best", "last"] = "best",
) -> Descent:
    """Projected gradient descent: sign steps from a random start; the best iterate.

    x' = project(x' - alpha * sign(gradient)), `steps` times from x' = x + U(-start, start)

    Args:
        steps: how many; 0 returns the very same pictures.
        alpha: length of a step in pixel units; none means gain * eps / steps.
        gain: the length of all steps together as a multiple of eps; without meaning beside alpha.
        start: radius of the random start in pixel units, at most eps; none means eps, 0 starts
            from the pictures themselves.
        select: `best` returns each picture's iterate of lowest loss (one forward pass more);
            `last` the last iterate.

    Source: Madry et al. 2018, Towards deep learning models resistant to adversarial attacks
    """
    return Descent(steps=steps, alpha=alpha, gain=gain, start=start, select=select)


def mim(
    steps: Steps = 10,
    alpha: Size | None = None,
    decay: Annotated[float, Meta(ge=0)] = 1.0,
) -> Descent:
    """Momentum iterative method: signs of a running sum of gradients; the last iterate.

    g = decay * g + gradient / mean(abs(gradient)); x' = project(x' - alpha * sign(g))

    Args:
        steps: how many; 0 returns the very same pictures.
        alpha: length of a step in pixel units; none means eps / steps.
        decay: share of the sum of earlier gradients that is kept.

    Source: Dong et al. 2018, Boosting adversarial attacks with momentum
    """
    return Descent(steps=steps, alpha=alpha, decay=decay)
