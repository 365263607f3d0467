"""The goal that sees an embedder as a classifier, by the centres of its classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor
from torch.nn import functional

from dmltk.attacks.probe import Objective, Probe
from dmltk.attacks.targets import by_class, places
from dmltk.batch import Batch
from dmltk.errors import UserError


@dataclass(frozen=True)
class Prototype:
    """Lost class: bring each picture nearer to another class's centre than to its own's.

    logit of class k = -||f(x') - c_k||^2 / temperature, c_k the mean of the class in the
    reference; loss = logit of its own class - largest logit of another (`margin`; below zero the
    nearest centre is another class's), or -cross-entropy of the logits (`ce`).

    Args:
        loss: `margin` looks at the nearest other class, `ce` at all of them.
        temperature: divides the squared distances; a small one makes `ce` look at the nearest.
        unit: scales the centres to length one.
        leave_out: takes a picture's own row, known by its index, out of the centre of its class;
            a picture that is alone in its class keeps it.

    Source: Snell, Swersky and Zemel 2017, Prototypical networks, eq. 1 and 2; Carlini and Wagner
        2017, Towards evaluating the robustness of neural networks, for the margin
    """

    loss: Literal["margin", "ce"] = "margin"
    temperature: Annotated[float, Meta(gt=0)] = 1.0
    unit: bool = False
    leave_out: bool = True

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError(f"temperature={self.temperature:g}: a number above 0 is needed")

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Takes the centres of the reference's classes, and each picture's own one."""
        if batch.labels is None:
            raise UserError("prototype needs labels: give the batch its labels")
        if batch.reference is None:
            raise UserError("prototype takes its centres from a reference: give the batch one")
        labels = batch.labels.to(batch.images.device)
        pool = batch.reference.embeddings.to(batch.images.device, torch.float64)
        rows = batch.reference.labels.to(batch.images.device)
        classes, sizes, sums = by_class(pool, rows)
        if len(classes) < 2:
            raise UserError(
                "prototype needs two classes or more and the reference has one: give it a"
                " reference with other classes"
            )
        place = places(labels, classes, "prototype")
        own_sum, own_size = sums[place], sizes[place]
        if self.leave_out:
            own = _own_rows(batch, labels, rows) & (own_size > 1)[:, None]
            own_sum, own_size = own_sum - own.double() @ pool, own_size - own.sum(1)
        centres, own_centre = sums / sizes[:, None], own_sum / own_size[:, None]
        if self.unit:
            centres, own_centre = (functional.normalize(c, dim=1) for c in (centres, own_centre))
        centres, own_centre = centres.to(batch.images), own_centre.to(batch.images)
        return _Loss(centres, own_centre, place, self.loss, self.temperature)


@dataclass(frozen=True, eq=False)
class _Loss:
    """Embeddings (N, D) -> margin or negative cross-entropy (N,).

    ||z||^2 is the same for every class and left out: it changes neither of the two.

    Args:
        centres: (K, D).
        own: (N, D) each picture's own centre.
        place: (N,) where that class stands among the K.
        loss: `margin` or `ce`.
        temperature: divides the logits.
    """

    centres: Tensor
    own: Tensor
    place: Tensor
    loss: str
    temperature: float

    def __call__(self, z: Tensor) -> Tensor:
        logits = (2 * z @ self.centres.T - self.centres.square().sum(1)) / self.temperature
        own = (2 * (z * self.own).sum(1) - self.own.square().sum(1)) / self.temperature
        if self.loss == "margin":
            return own - logits.scatter(1, self.place[:, None], -math.inf).amax(1)
        logits = logits.scatter(1, self.place[:, None], own[:, None])
        return -functional.cross_entropy(logits, self.place, reduction="none")


def _own_rows(batch: Batch, labels: Tensor, rows: Tensor) -> Tensor:
    """(N, M): whether a row of the reference is the picture itself."""
    if batch.index is None:
        raise UserError(
            "prototype leaves a picture's own row out by index: give the batch its index, -1 for "
            "a picture that is not in the reference, or write leave_out=false"
        )
    numbers = torch.arange(len(rows), device=rows.device)
    itself = batch.index.to(rows.device)[:, None] == numbers
    return itself & (labels[:, None] == rows)
