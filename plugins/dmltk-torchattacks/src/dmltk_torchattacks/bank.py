"""An embedder as a classifier: one column of logits for each class centre."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from dmltk.attacks import Goal, Objective, Probe
from dmltk.attacks.targets import by_class, places
from dmltk.batch import Batch
from dmltk.errors import UserError
from torch import Generator, Tensor

from dmltk_torchattacks.table import Row


@dataclass(frozen=True, eq=False)
class Bank:
    """Class centres, and which of them each picture is to leave or to reach.

    Args:
        centres: (K, D) means of classes.
        labels: (N,) the column of each picture's own class, or of the class it is to reach.
        aimed: whether `labels` are to be reached.
        temperature: divides the squared distances.
    """

    centres: Tensor
    labels: Tensor
    aimed: bool
    temperature: float

    def __call__(self, z: Tensor) -> Tensor:
        """(N,) by how much a picture misses what is wanted; below zero it is reached."""
        logits = self.logits(z)
        chosen = logits.gather(1, self.labels[:, None])[:, 0]
        best = logits.scatter(1, self.labels[:, None], -math.inf).amax(1)
        return best - chosen if self.aimed else chosen - best

    def logits(self, z: Tensor) -> Tensor:
        """(n, K): -||z - c_k||^2 / temperature but for a number that all columns share.

        It is chosen so that the lowest column is zero: some attacks take zero for the logit of a
        column that is masked out.
        """
        with torch.autocast(z.device.type, enabled=False):
            found = (2 * z @ self.centres.T - self.centres.square().sum(1)) / self.temperature
            return found - found.detach().amin(1, keepdim=True)


@dataclass(frozen=True)
class Centres:
    """Leave the own class's centre, or reach the one that a goal likes best.

    Args:
        row: of the class that attacks.
        goal: names the class to reach: the one at whose centre its loss is lowest; None to leave
            the own class, for a class that has to aim: to reach the nearest other one.
        targets_from: whose classes: the batch's or the reference's.
        temperature: divides the squared distances.
        classes: the fewest that the attack can work with.
    """

    row: Row
    goal: Goal | None
    targets_from: Literal["batch", "reference"]
    temperature: float
    classes: int

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Takes the centres and finds each picture's column."""
        if batch.labels is None:
            raise UserError("class centres need labels: give the batch its labels")
        classes, centres = self._centres(probe, batch, batch.labels)
        own = places(batch.labels.to(classes.device), classes, "the attack")
        bank = Bank(centres, own, False, self.temperature)
        if self.goal is None and self.row.aims != "must":
            return bank
        losses = (
            -bank.logits(probe.embed(batch.images))
            if self.goal is None
            else _losses(self.goal.prepare(probe, batch, generator), centres, len(own))
        )
        aims = losses.scatter(1, own[:, None], math.inf).argmin(1)
        return Bank(centres, aims, True, self.temperature)

    def _centres(self, probe: Probe, batch: Batch, labels: Tensor) -> tuple[Tensor, Tensor]:
        """(K,) sorted labels and (K, D) means, on the pictures' device."""
        images, whole = batch.images, None
        if self.targets_from == "reference":
            whole = batch.reference
            if whole is None:
                raise UserError("targets_from=reference needs a batch with a reference")
        pool = probe.embed(images) if whole is None else whole.embeddings
        owners = labels if whole is None else whole.labels
        classes, sizes, sums = by_class(pool.to(images.device), owners.to(images.device))
        if len(classes) < self.classes:
            raise UserError(
                f"the attack needs centres of {self.classes} classes or more and the "
                f"{self.targets_from} has {len(classes)}: give more, such as by "
                "targets_from=reference with a reference"
            )
        return classes, (sums / sizes[:, None]).to(images.dtype)


def _losses(objective: Objective, centres: Tensor, pictures: int) -> Tensor:
    """(N, K): a goal's loss for each picture, were its embedding at each centre."""
    with torch.no_grad():
        found = [objective(centre.expand(pictures, -1)) for centre in centres]
    if found[0].ndim == 0:
        raise UserError(
            "the goal's loss is one number for the whole batch, so it names no class for each "
            "picture: take another goal, or leave it out"
        )
    return torch.stack(found, 1)


@dataclass(frozen=True)
class Nothing:
    """No goal at all, for attacks that look at no model."""

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """A loss of zero."""
        return lambda z: z.new_zeros(len(z))
