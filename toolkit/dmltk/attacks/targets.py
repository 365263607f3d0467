"""Whom an attack aims at: items of other classes, drawn for each picture."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Generator, Tensor

from dmltk.errors import UserError


def draw(labels: Tensor, pool: Tensor, count: int, generator: Generator) -> Tensor:
    """Rows of a pool whose labels differ from each picture's: `count` distinct classes each.

    First the classes are drawn, evenly and without repetition, then a member of each. Where
    there are fewer other classes than `count`, classes repeat and a warning says so.

    Args:
        labels: (N,) the pictures' labels.
        pool: (M,) the labels of what can be aimed at.
        count: targets a picture.
        generator: on the CPU.

    Returns:
        (N, count) rows of the pool, on the CPU.

    Raises:
        UserError: where some picture finds no other class.
    """
    labels, pool = labels.cpu(), pool.cpu()
    check(labels, pool, count)
    classes, member, sizes = torch.unique(pool, return_inverse=True, return_counts=True)
    own = torch.searchsorted(classes, labels)
    absent = classes[own.clamp_max(len(classes) - 1)] != labels
    own = own.masked_fill(absent, len(classes))
    chosen = _distinct(own, len(classes), count, generator)
    starts = sizes.cumsum(0) - sizes
    offset = (_uniform(chosen.shape, generator) * sizes[chosen]).long()
    return member.argsort(stable=True)[starts[chosen] + offset]


def nearest(z: Tensor, labels: Tensor, pool: Tensor, pool_labels: Tensor, count: int) -> Tensor:
    """The centres nearest to each picture among the centres of other classes.

    A centre is the mean of a class in the pool. Where there are fewer other classes than `count`,
    centres repeat, nearest first, and a warning says so.

    Args:
        z: (N, D) embeddings of the pictures.
        labels: (N,) the pictures' labels.
        pool: (M, D) embeddings of what can be aimed at.
        pool_labels: (M,) their labels.
        count: targets a picture.

    Returns:
        (N, count, D), nearest first.

    Raises:
        UserError: where some picture finds no other class.
    """
    labels, pool_labels = labels.to(z.device), pool_labels.to(z.device)
    check(labels, pool_labels, count)
    classes, sizes, sums = by_class(pool.to(z.device), pool_labels)
    centres = sums / sizes[:, None]
    own = labels[:, None] == classes
    distance = torch.cdist(z.double(), centres, compute_mode="donot_use_mm_for_euclid_dist")
    order = distance.masked_fill(own, math.inf).argsort(dim=1, stable=True)
    place = torch.arange(count, device=z.device) % (~own).sum(1)[:, None]
    return centres[order.gather(1, place)].to(z.dtype)


def by_class(pool: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The classes of a pool.

    Args:
        pool: (M, D) embeddings.
        labels: (M,) their labels, on the same device.

    Returns:
        (K,) labels in order, (K,) how many there are of each, and (K, D) float64 sums of each.
    """
    classes, member, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    sums = pool.new_zeros((len(classes), pool.shape[1]), dtype=torch.float64)
    return classes, sizes, sums.index_add_(0, member, pool.double())


def places(labels: Tensor, classes: Tensor, goal: str) -> Tensor:
    """(N,) where each picture's class stands among the classes (in order).

    Raises:
        UserError: a class that is not among them.
    """
    absent = labels[~torch.isin(labels, classes)]
    if len(absent):
        raise UserError(
            f"the reference has no picture of class {int(absent[0])}: {goal} needs one that holds"
            " the class of every picture attacked"
        )
    return torch.searchsorted(classes, labels)


def check(labels: Tensor, pool: Tensor, count: int = 1) -> None:
    """Refuses a pool without another class, and warns of one with fewer than `count` others."""
    classes = pool.unique()
    others = len(classes) - int(torch.isin(classes, labels).any())
    if others == 0:
        raise UserError(
            "there is no other class to aim at: give a batch of two classes or more, "
            "or targets_from=reference with a reference of other classes"
        )
    if others < count:
        warnings.warn(
            f"{count} targets were asked for and only {others} other classes are there: "
            "some are taken more than once",
            stacklevel=3,
        )


def permute(count: int, pictures: int, generator: Generator) -> Tensor:
    """(pictures, count) rows: `count` random permutations of the batch, whatever the labels."""
    if pictures == 1:
        raise UserError("pick=permutation of a single picture is that picture: take a larger batch")
    return torch.stack([torch.randperm(pictures, generator=generator) for _ in range(count)], 1)


def _distinct(own: Tensor, classes: int, count: int, generator: Generator) -> Tensor:
    """(N, count) classes in [0, classes) other than `own`; none twice before all are used.

    `own` is `classes` where the picture's class is not among them; that value marks an empty
    place in `taken`. The r-th free class is found by stepping over the taken ones in order.
    """
    taken = own[:, None]
    chosen = []
    for _ in range(count):
        free = classes - (taken < classes).sum(1)
        used_up = (free == 0)[:, None] & (torch.arange(taken.shape[1]) > 0)
        taken = taken.masked_fill(used_up, classes)
        free = classes - (taken < classes).sum(1)
        drawn = (_uniform(free.shape, generator) * free).long()
        for occupied in taken.sort(1).values.unbind(1):
            drawn = drawn + (drawn >= occupied)
        chosen.append(drawn)
        taken = torch.cat([taken, drawn[:, None]], 1)
    return torch.stack(chosen, 1)


def _uniform(shape: torch.Size, generator: Generator) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator)
