"""A solver of attacks for dmltk."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks import Probe, Threat


@dataclass(frozen=True)
class Example:
    """Steepest steps that get shorter: the k-th has length eps / k.

    Args:
        steps: how many.

    Source: name the paper here.
    """

    steps: Annotated[int, Meta(ge=1)] = 5

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures (N, C, H, W) inside the threat."""
        found = images
        for step in range(1, self.steps + 1):
            _, gradient = probe.gradient(found)
            length = threat.largest / step
            found = threat.project(found - length * threat.steepest(gradient), images)
        return found
