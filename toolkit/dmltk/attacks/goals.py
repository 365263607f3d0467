"""Goals: what an attack wants of the embedding, as a loss that is minimised."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks import targets as draws
from dmltk.attacks.gallery import Gallery, distances
from dmltk.attacks.probe import Objective, Probe
from dmltk.batch import Batch
from dmltk.errors import UserError


@dataclass(frozen=True)
class Targeted:
    """Brings each picture near the embeddings of `targets` items; see Stax and Mtax."""

    targets: Annotated[int, Meta(ge=1)] = 5
    power: Literal[1, 2] = 2
    targets_from: Literal["batch", "reference"] = "batch"
    pick: Literal["random", "nearest", "permutation"] = "random"

    def __post_init__(self) -> None:
        if self.targets < 1:
            raise UserError(f"targets={self.targets}: at least one is needed")
        if self.pick == "permutation" and self.targets_from != "batch":
            raise UserError("pick=permutation permutes the batch: it needs targets_from=batch")

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Draws the targets and takes their embeddings, once."""
        aims = self._embeddings(probe, batch, generator)
        ranked = batch.reference is not None and batch.index is not None
        return _Near(aims, self.power, Gallery.of(probe, batch, "mtax") if ranked else None)

    def _embeddings(self, probe: Probe, batch: Batch, generator: Generator) -> Tensor:
        """(N, targets, D), in the precision of the goal's loss."""
        images, dtype = batch.images, _precision(batch)
        if self.pick == "permutation":
            rows = draws.permute(self.targets, len(images), generator)
            return probe.embed(images)[rows.to(images.device)].to(dtype)
        if batch.labels is None:
            raise UserError("targets of other classes need labels: give the batch its labels")
        if self.targets_from == "reference" and batch.reference is None:
            raise UserError("targets_from=reference needs a batch with a reference")
        whole = batch.reference if self.targets_from == "reference" else None
        labels = batch.labels if whole is None else whole.labels
        if self.pick == "random":
            rows = draws.draw(batch.labels, labels, self.targets, generator)
            pool: Tensor = probe.embed(images) if whole is None else whole.embeddings
            return pool[rows.to(pool.device)].to(images.device, dtype)
        clean: Tensor = probe.embed(images)
        pool = clean if whole is None else whole.embeddings.to(clean)
        return draws.nearest(clean, batch.labels, pool, labels, self.targets)


class _Near:
    """The mean distance to targets.

    Args:
        aims: (N, targets, D).
        power: 2 for squared distances, 1 for distances.
        gallery: what the pictures are ranked against, where there is one.
    """

    def __init__(self, aims: Tensor, power: int, gallery: Gallery | None) -> None:
        self.aims, self.power = aims, power
        self.mean = aims.mean(1)
        self.spread = (aims - self.mean[:, None]).square().sum(2).mean(1)
        if gallery is not None:
            self.figures = _Hits(aims, gallery)

    def __call__(self, z: Tensor) -> Tensor:
        if self.power == 1:
            return torch.linalg.vector_norm(z[:, None] - self.aims, dim=2).mean(1)
        return (z - self.mean).square().sum(1) + self.spread


class _Hits:
    """How many targets a query finds before its own nearest item.

    Source: MDProp (Singh et al.), eq. 4
    """

    def __init__(self, aims: Tensor, gallery: Gallery) -> None:
        found = distances(gallery.clean, gallery.pool)
        self.own = found.masked_fill(~gallery.others, math.inf).argmin(1)
        self.aims, self.pool = aims, gallery.pool

    def __call__(self, z: Tensor) -> dict[str, Tensor]:
        """`target_hits`, the share of the targets nearer than the clean nearest; `all_targets`."""
        bound = torch.linalg.vector_norm(z - self.pool[self.own], dim=1)
        hit = torch.linalg.vector_norm(z[:, None] - self.aims, dim=2) <= bound[:, None]
        return {
            "target_hits": hit.to(z.dtype).mean(1),
            "all_targets": hit.all(1).to(z.dtype),
        }


@dataclass(frozen=True)
class Stax(Targeted):
    """Single-target attack: bring each picture near one item of another class.

    loss = ||f(x') - f(x_t)||^power, x_t drawn once among items of other labels.

    Args:
        power: 2 for the squared distance, 1 for the distance.
        targets_from: `batch` aims at the batch itself, `reference` at a whole data set.
        pick: `random` draws other classes; `nearest` aims at the centre of the other class whose
            centre is nearest; `permutation` takes a random permutation of the batch whatever the
            labels, as the published code does.

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
        pick: `random` draws other classes; `nearest` aims at the centres of the other classes
            whose centres are nearest; `permutation` takes random permutations of the batch
            whatever the labels, as the published code does.

    Source: Singh et al., MDProp, eq. 3
    """


@dataclass(frozen=True)
class Tma(Targeted):
    """Targeted mismatch: turn each picture's embedding towards one item of another class.

    loss = 1 - cos(f(x'), f(x_t)), x_t drawn once among items of other labels; with embeddings of
    length one it is half of stax's loss, so sign steps are the same.

    Args:
        targets_from: `batch` aims at the batch itself, `reference` at a whole data set.
        pick: `random` draws other classes; `nearest` aims at the centre of the other class whose
            centre is nearest; `permutation` takes a random permutation of the batch whatever the
            labels, as the published code does.

    Source: Tolias, Radenovic and Chum 2019, Targeted mismatch adversarial attack
    """

    targets: Annotated[int, Meta(ge=1)] = field(default=1, init=False)
    power: Literal[1, 2] = field(default=2, init=False)

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Draws the targets and takes their embeddings, once."""
        return _Cosine(self._embeddings(probe, batch, generator)[:, 0])


class _Cosine:
    def __init__(self, aims: Tensor) -> None:
        self.aims = aims

    def __call__(self, z: Tensor) -> Tensor:
        return 1 - torch.nn.functional.cosine_similarity(z, self.aims)

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`cosine` to the target."""
        return {"cosine": 1 - self(z)}


@dataclass(frozen=True)
class Misrank:
    """Lost retrieval: bring an item of another class nearer than any item of a picture's own.

    loss = min over other classes of ||f(x') - f(g)|| - min over its own class of ||f(x') - f(g)||
    over the reference, the picture's own row left out by index; below zero R@1 is lost. Where a
    picture is alone in its class, the second distance is left out.

    Args:
        every: the gradient follows the nearest two of every so many steps; the loss itself is
            always that of the nearest now.

    Source: dmltk; the margin loss of Carlini and Wagner 2017, carried over to retrieval
    """

    every: Annotated[int, Meta(ge=1)] = 1

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Notes which rows of the reference are of other classes, and which of a picture's own."""
        if batch.labels is None:
            raise UserError("misrank needs labels: give the batch its labels")
        if batch.reference is None:
            raise UserError("misrank ranks a reference: give the batch one")
        if batch.index is None:
            raise UserError(
                "misrank leaves a picture's own row out by index: give the batch its index, "
                "-1 for a picture that is not in the reference"
            )
        device = batch.images.device
        pool = batch.reference.embeddings.to(device, _precision(batch))
        own, labels = batch.labels.to(device), batch.reference.labels.to(device)
        draws.check(own, labels)
        same = own[:, None] == labels
        rows = torch.arange(len(pool), device=device)
        mates = same & (batch.index.to(device)[:, None] != rows)
        return _Margin(pool, ~same, mates, self.every)


class _Margin:
    """Distance to the nearest of the others minus distance to the nearest mate.

    Args:
        pool: (M, D) embeddings.
        others: (N, M) which rows are of another class.
        mates: (N, M) which rows are of the same class; none for a picture that is alone.
        every: evaluations with a gradient after which it follows the nearest anew.
    """

    def __init__(self, pool: Tensor, others: Tensor, mates: Tensor, every: int) -> None:
        self.pool, self.every, self.calls = pool, every, 0
        self.barred = (~others, ~mates)
        self.alone = ~mates.any(1)
        self.followed: Tensor | None = None

    def __call__(self, z: Tensor) -> Tensor:
        nearest = self._nearest(z.detach())
        if not (z.requires_grad and torch.is_grad_enabled()):
            self.calls = 0
            return self._margin(z, nearest)
        if self.followed is None or self.calls % self.every == 0:
            self.followed = nearest
        self.calls += 1
        followed = self._margin(z, self.followed)
        return followed + (self._margin(z, nearest) - followed).detach()

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`recall`: 1 where the nearest item is of the picture's own label."""
        held = (self._margin(z, self._nearest(z)) > 0) & ~self.alone
        return {"recall": held.to(z.dtype)}

    def _nearest(self, z: Tensor) -> Tensor:
        """(2, N) rows of the nearest other and the nearest mate."""
        distance = torch.cdist(z, self.pool, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.stack([distance.masked_fill(bar, math.inf).argmin(1) for bar in self.barred])

    def _margin(self, z: Tensor, rows: Tensor) -> Tensor:
        other, mate = (torch.linalg.vector_norm(z - self.pool[row], dim=1) for row in rows)
        return other - mate.masked_fill(self.alone, 0)


@dataclass(frozen=True)
class Flee:
    """Embedding shift: move each picture's embedding away from where it was.

    loss = -||f(x') - f(x)||^2; it has no gradient at x' = x, so a solver starts at random.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense
    """

    zero_at_start = True

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Takes the clean embeddings, once."""
        return _Shift(probe.embed(batch.images))


class _Shift:
    def __init__(self, clean: Tensor) -> None:
        self.clean = clean

    def __call__(self, z: Tensor) -> Tensor:
        return -(z - self.clean).square().sum(1)

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`shift`: how far the embedding moved."""
        return {"shift": torch.linalg.vector_norm(z - self.clean, dim=1)}


def _precision(batch: Batch) -> torch.dtype:
    """The precision of the goal's loss."""
    return torch.float64 if batch.images.dtype == torch.float64 else torch.float32
