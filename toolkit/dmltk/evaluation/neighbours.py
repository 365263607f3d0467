"""Nearest neighbours kind by kind: the honest reading of an embedding space."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CELLS = 1 << 22
"""Most distances held at once."""


def distances(positions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and their Euclidean distances to all, chunk by chunk; to themselves infinity.

    Never by matrix products, which leave like rows apart.

    Args:
        positions: (N, D).
    """
    wide = positions.double()
    step = max(1, CELLS // max(len(wide), 1))
    for first in range(0, len(wide), step):
        rows = torch.arange(first, min(first + step, len(wide)))
        apart = torch.cdist(wide[rows], wide, compute_mode="donot_use_mm_for_euclid_dist")
        apart[torch.arange(len(rows)), rows] = torch.inf
        yield rows, apart


def found(positions: Tensor, labels: Tensor) -> Tensor:
    """(N,) whether the nearest other picture has the same label; ties count against it.

    Args:
        positions: (N, D).
        labels: (N,) integers.
    """
    parts = []
    for rows, apart in distances(positions):
        like = labels[rows][:, None] == labels
        own = apart.where(like, torch.inf).amin(1)
        parts.append(own < apart.where(~like, torch.inf).amin(1))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool)


def shares(positions: Tensor, labels: Tensor, k: int = 10) -> dict[int, float]:
    """By label, the mean share of the k nearest that have the same one.

    Args:
        positions: (N, D).
        labels: (N,) integers.
        k: neighbours looked at; all others where there are fewer.
    """
    parts = []
    for rows, apart in distances(positions):
        nearest = apart.topk(min(k, len(labels) - 1), largest=False).indices
        parts.append((labels[nearest] == labels[rows][:, None]).double().mean(1))
    each = torch.cat(parts)
    return {int(label): each[labels == label].mean().item() for label in labels.unique()}


def tightness(positions: Tensor, labels: Tensor) -> dict[int, float]:
    """By label, the mean distance inside it over that to all other labels.

    Scale-confounded: whatever enlarges distances between kinds makes every kind look tight. Read
    it beside nearest neighbours, and choose no model by it.

    Args:
        positions: (N, D).
        labels: (N,) integers.
    """
    inside, outside = torch.zeros(len(labels)).double(), torch.zeros(len(labels)).double()
    for rows, apart in distances(positions):
        like = labels[rows][:, None] == labels
        own = apart.isfinite() & like
        inside[rows] = apart.where(own, 0).sum(1) / own.sum(1)
        outside[rows] = apart.where(~like, 0).sum(1) / (~like).sum(1)
    return {
        int(label): (inside[labels == label].mean() / outside[labels == label].mean()).item()
        for label in labels.unique()
    }
