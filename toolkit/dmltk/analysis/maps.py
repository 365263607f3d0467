"""What the pictures of an analysis show: a few points of a space, and the numbers beside them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmltk.evaluation.distances import between

__all__ = ["MOST", "NEAREST", "Map", "knn_accuracy", "map_of", "negatives", "silhouette"]

MOST = 1000
"""Most points of a map."""
NEAREST = 10
PERPLEXITY = 30.0
FEWEST = 5


@dataclass(frozen=True)
class Map:
    """Points of a space laid out in the plane by t-SNE, and what holds in the space itself.

    Args:
        points: (n, 2).
        groups: (n,) places in `names`.
        names: of the groups.
        figures: kNN accuracy and silhouette of the groups, chance, seed, perplexity.
        twins: whether the groups are the same pictures over again.
    """

    points: NDArray[Any]
    groups: NDArray[Any]
    names: Sequence[str]
    figures: dict[str, Any]
    twins: bool = False


def map_of(
    positions: Tensor, groups: Tensor, names: Sequence[str], seed: int, twins: bool = False
) -> Map | None:
    """A map of at most MOST points.

    Args:
        positions: (n, D).
        groups: (n,) integers, places in `names`.
        names: of the groups.
        seed: of t-SNE.
        twins: whether the groups are the same pictures over again.

    Returns:
        None where there are too few points, or all lie on one spot.
    """
    from sklearn.manifold import TSNE

    space, labels = positions.double().cpu().numpy(), groups.cpu().numpy()
    if len(space) < FEWEST or np.ptp(space, axis=0).max() == 0:
        return None
    perplexity = min(PERPLEXITY, (len(space) - 1) / 3)
    start: Any = "pca" if space.shape[1] > 1 else "random"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        laid = TSNE(perplexity=perplexity, init=start, random_state=seed).fit_transform(space)
    counts = np.bincount(labels)
    figures = {
        "points": len(space),
        "seed": seed,
        "perplexity": perplexity,
        "knn_accuracy": knn_accuracy(space, labels),
        "chance": float(counts.max() / counts.sum()),
        "silhouette": silhouette(space, labels),
    }
    return Map(laid, labels, names, figures, twins)


def knn_accuracy(space: NDArray[Any], labels: NDArray[Any]) -> float:
    """How often the ten nearest other points (fewer where there are fewer) vote for the own group.

    Args:
        space: (n, D), n at least 2.
        labels: (n,) integers.
    """
    from sklearn.neighbors import KNeighborsClassifier

    near = KNeighborsClassifier(min(NEAREST, len(space) - 1), algorithm="brute")
    # without points to predict, each of its own points is judged by the others
    return float((near.fit(space, labels).predict(None) == labels).mean())


def silhouette(space: NDArray[Any], labels: NDArray[Any]) -> float | None:
    """The mean silhouette, in [-1, 1]; None with one group, or as many as points."""
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(labels)) < len(labels):
        return None
    return float(silhouette_score(space, labels))


def negatives(positions: Tensor, labels: Tensor) -> NDArray[Any]:
    """The distance of every two pictures of different classes over the mean of them all.

    Args:
        positions: (n, D).
        labels: (n,) integers.

    Returns:
        (pairs,) float64; none with one class, or where all distances are 0.
    """
    parts = []
    for rows, apart in between(positions, positions):
        later = torch.arange(len(labels)) > rows[:, None]
        parts.append(apart[later & (labels[rows][:, None] != labels)])
    found = torch.cat(parts)
    mean = found.mean() if len(found) else found.sum()
    return (found / mean).numpy() if mean > 0 else np.zeros(0)
