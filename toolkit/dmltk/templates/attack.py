"""An attack for dmltk."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from torch import Generator

from dmltk.attacks import Attack, Objective, Probe, Threat, bim
from dmltk.batch import Batch


@dataclass(frozen=True)
class Example:
    """The goal: to be near the middle of the batch."""

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Embeds the batch once; the loss is each picture's distance to its middle."""
        middle = probe.embed(batch.images).mean(0)
        return lambda z: (z - middle).square().sum(1)


def example(
    *, steps: Annotated[int, Meta(ge=1)] = 5, eps: Annotated[float, Meta(ge=0, le=1)] = 8 / 255
) -> Attack:
    """Move each picture's embedding to the middle of its batch.

    Args:
        steps: sign steps of the search.
        eps: largest change of a pixel, in [0, 1].

    Source: name the paper here.
    """
    return Attack(Example(), bim(steps=steps), Threat(eps=eps))
