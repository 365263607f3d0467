"""The tutorial's attack for dmltk: pictures that say hello to everyone."""

from dataclasses import dataclass
from typing import Annotated

from dmltk import Batch
from dmltk.attacks import Attack, Objective, Probe, Threat, bim
from msgspec import Meta
from torch import Generator


@dataclass(frozen=True)
class Crowd:
    """The goal: to be near all of the batch at once."""

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Embeds the batch once; the loss is each picture's distance to its middle."""
        middle = probe.embed(batch.images).mean(0)
        return lambda z: (z - middle).square().sum(1)


def hello(
    *, steps: Annotated[int, Meta(ge=1)] = 5, eps: Annotated[float, Meta(ge=0, le=1)] = 8 / 255
) -> Attack:
    """Join the crowd: move each picture's embedding to the middle of its batch.

    Args:
        steps: sign steps of the search.
        eps: largest change of a pixel, in [0, 1].

    Source: the dmltk tutorial.
    """
    return Attack(Crowd(), bim(steps=steps), Threat(eps=eps))
