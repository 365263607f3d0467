"""Goals of the first place: what is retrieved first is lost, or of another class.

Distances are Euclidean, and a picture's own row of the reference is left out by index. What a goal
reports (`figures`) counts ties against the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from dmltk.attacks.gallery import Gallery, distances
from dmltk.attacks.probe import Objective, Probe
from dmltk.attacks.ranking import QueryMoves
from dmltk.attacks.targets import check
from dmltk.batch import Batch
from dmltk.errors import UserError


class _Labelled:
    """A goal that is judged by whether the nearest item has the picture's label."""

    def __init__(self, gallery: Gallery, batch: Batch, goal: str) -> None:
        if batch.labels is None:
            raise UserError(f"{goal} needs labels: give the batch its labels")
        labels = batch.labels.to(gallery.labels.device)
        check(labels, gallery.labels)
        self.gallery = gallery
        same = gallery.labels == labels[:, None]
        self.mates, self.foes = same & gallery.others, ~same & gallery.others

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`recall`: 1 where an item of the picture's own label is nearer than all others."""
        found = distances(z, self.gallery.pool)
        mate = found.masked_fill(~self.mates, math.inf).amin(1)
        foe = found.masked_fill(~self.foes, math.inf).amin(1)
        return {"recall": (mate < foe).to(z.dtype)}


class _Margin(_Labelled):
    """Farthest other less nearest mate; without a mate, or another class, that part is zero."""

    def __call__(self, z: Tensor) -> Tensor:
        found = distances(z, self.gallery.pool)
        foe = found.masked_fill(~self.foes, -math.inf).amax(1)
        mate = found.masked_fill(~self.mates, math.inf).amin(1)
        foe = foe.masked_fill(~self.foes.any(1), 0)
        return (foe - mate.masked_fill(~self.mates.any(1), 0)).clamp_min(0)


@dataclass(frozen=True)
class Ltm:
    """Learning to misrank: even the farthest item of another class comes before any of its own.

    loss = [max over other classes of d(q, x) - min over its own class of d(q, x)]+, its own row
    left out. Reports `recall`.

    Source: Wang et al. 2020, Transferable, controllable and inconspicuous adversarial attacks on
    person re-identification, as PGD
    """

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Notes which items are of the picture's class."""
        return _Margin(Gallery.of(probe, batch, "ltm"), batch, "ltm")


class _Toward(_Labelled):
    def __init__(self, gallery: Gallery, batch: Batch, row: Tensor) -> None:
        super().__init__(gallery, batch, "gtm")
        self.aim = gallery.pool[row]

    def __call__(self, z: Tensor) -> Tensor:
        return torch.linalg.vector_norm(z - self.aim, dim=1)


@dataclass(frozen=True)
class Gtm:
    """Greedy top-1 misranking: towards the nearest item of another class than the first one's.

    loss = d(q, u), u the nearest clean item whose class is not that of the clean top-1; where all
    items are of one class, the nearest. Reports `recall`.

    Source: Zhou and Patel 2022, Enhancing adversarial robustness for deep metric learning
    """

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Finds the item, once."""
        gallery = Gallery.of(probe, batch, "gtm")
        first = gallery.labels[gallery.nearest(gallery.others)]
        foreign = gallery.others & (gallery.labels != first[:, None])
        foreign = torch.where(foreign.any(1, keepdim=True), foreign, gallery.others)
        return _Toward(gallery, batch, gallery.nearest(foreign))


class _Pushed(QueryMoves):
    """Lowers one item and says whether it is among the first four still."""

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`retained`: 1 where fewer than four items are as near as the clean top-1."""
        found = distances(z, self.gallery.pool)
        bound = found.gather(1, self.chosen)
        rest = self.gallery.others.scatter(1, self.chosen, False)
        return {"retained": (((found <= bound) & rest).sum(1) < 4).to(z.dtype)}


@dataclass(frozen=True)
class Gtt:
    """Greedy top-1 translocation: push the clean top-1 out of the first four.

    loss = mean over items x of [d(q, x) - d(q, c)]+, c the clean top-1. Reports `retained`.

    Source: Zhou and Patel 2022, Enhancing adversarial robustness for deep metric learning
    """

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Finds the clean top-1, once."""
        gallery = Gallery.of(probe, batch, "gtt")
        return _Pushed(gallery, gallery.nearest(gallery.others)[:, None], False)
