"""A goal of attacks for dmltk."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from torch import Generator
from torch.nn import functional

from dmltk.attacks import Objective, Probe
from dmltk.batch import Batch


@dataclass(frozen=True)
class Example:
    """Turn each picture's embedding away from where it was, by an angle.

    loss = max(cos(f(x'), f(x)), cosine)

    Args:
        cosine: at which it is far enough.

    Source: name the paper here.
    """

    cosine: Annotated[float, Meta(ge=-1, le=1)] = -1.0

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Embeds the clean pictures once."""
        clean = probe.embed(batch.images)
        return lambda z: functional.cosine_similarity(z, clean.to(z)).clamp_min(self.cosine)
