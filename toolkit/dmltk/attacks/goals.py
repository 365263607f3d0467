"""Goals: what an attack wants of the embedding, as a loss that is minimised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks import targets as draws
from dmltk.attacks.probe import Objective, Probe
from dmltk.batch import Batch
from dmltk.errors import UserError


@dataclass(frozen=True)
class Targeted:
    """Brings each picture near the embeddings of `targets` items; see Stax and Mtax."""

    targets: Annotated[int, Meta(ge=1)] = 5
    power: Literal[1, 2] = 2
    targets_from: Literal["batch", "reference"] = "batch"
    pick: Literal["random", "permutation"] = "random"

    def __post_init__(self) -> None:
        if self.targets < 1:
            raise UserError(f"targets={self.targets}: at least one is needed")
        if self.pick == "permutation" and self.targets_from != "batch":
            raise UserError("pick=permutation permutes the batch: it needs targets_from=batch")

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Draws the targets and takes their embeddings, once."""
        aims = self._embeddings(probe, batch, generator)
        if self.power == 1:
            return lambda z: torch.linalg.vector_norm(z[:, None] - aims, dim=2).mean(1)
        mean = aims.mean(1)
        spread = (aims - mean[:, None]).square().sum(2).mean(1)
        return lambda z: (z - mean).square().sum(1) + spread

    def _embeddings(self, probe: Probe, batch: Batch, generator: Generator) -> Tensor:
        """(N, targets, D), in the precision of the goal's loss."""
        dtype = torch.float64 if batch.images.dtype == torch.float64 else torch.float32
        if self.pick == "permutation":
            rows = draws.permute(self.targets, len(batch.images), generator)
            pool: Tensor = probe.embed(batch.images)
        elif batch.labels is None:
            raise UserError("targets of other classes need labels: give the batch its labels")
        elif self.targets_from == "batch":
            rows = draws.draw(batch.labels, batch.labels, self.targets, generator)
            pool = probe.embed(batch.images)
        elif batch.reference is None:
            raise UserError("targets_from=reference needs a batch with a reference")
        else:
            rows = draws.draw(batch.labels, batch.reference.labels, self.targets, generator)
            pool = batch.reference.embeddings
        return pool[rows.to(pool.device)].to(batch.images.device, dtype)


@dataclass(frozen=True)
class Stax(Targeted):
    """Single-target attack: bring each picture near one item of another class.

    loss = ||f(x') - f(x_t)||^power, x_t drawn once among items of other labels.

    Args:
        power: 2 for the squared distance, 1 for the distance.
        targets_from: `batch` aims at the batch itself, `reference` at a whole data set.
        pick: `random` draws other classes; `permutation` takes a random permutation of the batch
            whatever the labels, as the published code does.

    Source: Singh et al., MDProp, eq. 3 with T=1 and eq. 16
    """

    targets: Annotated[int, Meta(ge=1)] = field(default=1, init=False)


@dataclass(frozen=True)
class Mtax(Targeted):
    """Multi-target attack: bring each picture near several items of other classes at once.

    loss = mean over t of ||f(x') - f(x_t)||^power, x_t drawn once from distinct other classes.

    Args:
        targets: items aimed at together, T of the paper.
        power: 2 for squared distances, 1 for distances (eq. 3 with p=2).
        targets_from: `batch` aims at the batch itself, `reference` at a whole data set.
        pick: `random` draws other classes; `permutation` takes random permutations of the batch
            whatever the labels, as the published code does.

    Source: Singh et al., MDProp, eq. 3
    """


@dataclass(frozen=True)
class Flee:
    """Embedding shift: move each picture's embedding away from where it was.

    loss = -||f(x') - f(x)||^2; it has no gradient at x' = x, so a solver starts at random.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense
    """

    zero_at_start = True

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Takes the clean embeddings, once."""
        clean: Tensor = probe.embed(batch.images)
        return lambda z: -(z - clean).square().sum(1)
