"""The solver that mixes the channels of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks.probe import Probe
from dmltk.attacks.solvers import Best
from dmltk.attacks.threat import Threat
from dmltk.errors import UserError


@dataclass(frozen=True)
class Colour:
    """Random mixes of the channels; each picture's worst, the picture itself among them.

    x'_c = (1 - strength) x_c + strength * sum over j of w_cj x_j. No gradient is asked for; a
    mix costs one forward pass. The pictures of a batch share the mixes, so none depends on its
    batch mates. Wants `norm=none`.

    Args:
        tries: mixes drawn; 0 returns the very same pictures.
        strength: share of the mix in the new picture.
        weights: `convex` draws each channel's weights evenly from those that are not negative
            and sum to one, so grey stays grey and brightness within that of the channels; `free`
            draws each from U(0, 2 / channels), cut by the box, as the published code does.

    Source: Kantipudi, Dubey and Chakraborty 2020, Color channel perturbation attacks
    """

    tries: Annotated[int, Meta(ge=0)] = 50
    strength: Annotated[float, Meta(ge=0, le=1)] = 1.0
    weights: Literal["convex", "free"] = "convex"
    select: ClassVar[str] = "best"
    gradient_free: ClassVar[bool] = True
    needs_norm: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if self.tries < 0 or not 0 <= self.strength <= 1:
            raise UserError(
                f"tries={self.tries}, strength={self.strength:g}: give 0 tries or more and a "
                "strength in [0, 1]"
            )

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) in [0, 1]."""
        channels = images.shape[1]
        if channels == 1 and self.weights == "convex":
            raise UserError(
                "colour mixes channels and these pictures have one: write weights=free, which "
                "changes their brightness"
            )
        if self.tries == 0 or self.strength == 0:
            return images
        best = Best()
        best.see(images, probe.loss(images))
        for _ in range(self.tries):
            adv = mix(images, self._draw(channels, generator).to(images))
            best.see(adv, probe.loss(adv))
        probe.remember(best.images, best.loss)
        return best.images

    def _draw(self, channels: int, generator: Generator) -> Tensor:
        """(C, C) weights, a row for each new channel."""
        drawn = torch.rand(channels, channels, dtype=torch.float64, generator=generator)
        if self.weights == "free":
            drawn = drawn * 2 / channels
        else:
            drawn = -torch.log1p(-drawn)
            drawn = drawn / drawn.sum(1, keepdim=True)
        return torch.lerp(torch.eye(channels, dtype=torch.float64), drawn, self.strength)


def mix(images: Tensor, weights: Tensor) -> Tensor:
    """New channels, each a weighted sum of the old ones, cut by [0, 1].

    Args:
        images: (N, C, H, W).
        weights: (C, C), a row for each new channel.
    """
    new = [(images * row.view(1, -1, 1, 1)).sum(1) for row in weights]
    return torch.stack(new, 1).clamp(0, 1)
