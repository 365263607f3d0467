"""Nearest neighbours class by class: the honest reading of an embedding space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dmltk.evaluation.distances import PairMeans, between, hide
from dmltk.evaluation.metrics import own_share


@dataclass(frozen=True)
class Reading:
    """What the distances of one space say.

    Args:
        found: (N,) whether the nearest other picture has the same label; ties count against it.
        found_known: (N,) the same among pictures of known classes alone, False for all others.
        share: (N,) of the k nearest, those that have the same label; ties count against it.
        tightness: by label, the mean distance inside it over that to all other labels, where
            there are both.
    """

    found: Tensor
    found_known: Tensor
    share: Tensor
    tightness: dict[int, float]


def read(positions: Tensor, labels: Tensor, known: Tensor | None = None, k: int = 10) -> Reading:
    """All that is read from one space, with each distance taken once.

    Args:
        positions: (N, D).
        labels: (N,) integers.
        known: (N,) bool, which pictures are of classes that were trained; None for all.
        k: neighbours looked at; all others where there are fewer.
    """
    among = torch.ones(len(labels), dtype=torch.bool) if known is None else known.cpu()
    labels = labels.cpu()
    found, found_known, share = [], [], []
    sums = PairMeans(labels)
    for rows, apart in distances(positions):
        like = labels[rows][:, None] == labels
        found.append(_nearest(apart, like))
        found_known.append(_nearest(apart.masked_fill(~among, torch.inf), like) & among[rows])
        share.append(own_share(apart, like, k))
        sums.add(rows, apart, like)
    none = torch.zeros(0)
    return Reading(
        torch.cat([none.bool(), *found]),
        torch.cat([none.bool(), *found_known]),
        torch.cat([none.double(), *share]),
        sums.ratios(),
    )


def found(positions: Tensor, labels: Tensor) -> Tensor:
    """(N,) whether the nearest other picture has the same label; ties count against it.

    Args:
        positions: (N, D).
        labels: (N,) integers.
    """
    return read(positions, labels).found


def shares(positions: Tensor, labels: Tensor, k: int = 10) -> dict[int, float]:
    """By label, the mean share of the k nearest that have the same one; ties count against it.

    Args:
        positions: (N, D).
        labels: (N,) integers.
        k: neighbours looked at; all others where there are fewer.
    """
    each = read(positions, labels, k=k).share
    return {int(label): each[labels.cpu() == label].mean().item() for label in labels.unique()}


def tightness(positions: Tensor, labels: Tensor) -> dict[int, float]:
    """By label, the mean distance inside it over that to all other labels, where there are both.

    Scale-confounded: whatever enlarges distances between classes makes every class look tight. Read
    it beside nearest neighbours, and choose no model by it.

    Args:
        positions: (N, D).
        labels: (N,) integers.
    """
    return read(positions, labels).tightness


def distances(positions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and their Euclidean distances to all, chunk by chunk; to themselves infinity.

    Args:
        positions: (N, D).
    """
    for rows, apart in between(positions, positions):
        hide(apart, rows)
        yield rows, apart


def _nearest(apart: Tensor, like: Tensor) -> Tensor:
    own = apart.masked_fill(~like, torch.inf).amin(1)
    return own < apart.masked_fill(like, torch.inf).amin(1)
