"""Figures that need exact distances: tightness, and taking a picture for another one.

Distances are Euclidean, in float64, and never by matrix products where those round: like rows are
at distance 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import torch
from torch import Tensor

from dmltk.evaluation.metrics import Metric, refuse_non_finite

CELLS = 1 << 22
"""Most distances held at once."""
EXACT = 2.0**52
"""Whole numbers up to it, and their sums, are exact in float64."""


def tightness() -> Metric:
    """Mean distance inside a class over the mean distance to all others, averaged over classes.

    Scale-confounded: a margin enlarges everything; read beside nearest neighbours, never choose a
    model by it. A space can look tighter than another and find fewer pictures. Small is tight, 1 is
    no structure. Classes without a mate or without others are left out; None if all are.

    Source: intra- over inter-class distance, of pairs; Roth et al. 2020, section 5, take the second
        between class means (pi_ratio).
    """
    return mean_tightness


def identity_confusion() -> Metric:
    """Share of the queries that are no nearer to their own clean twin than to another picture.

    A query's twin is its own row of the gallery, which the other figures leave out; here it
    competes with all other pictures, of any class, and ties count against the model. Under the
    protocol query the query is adversarial and its twin clean: 0 says that every adversary is
    still nearest to the picture it was made of. Under clean it is 0 but for duplicates. Queries
    without a row of their own in the gallery are left out; None if all are.

    Source: Kim et al. 2020, Adversarial self-supervised contrastive learning, on instance confusion
    """
    return confused


def mean_tightness(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """`{"tightness": …}` over the classes of the queries."""
    sums = PairMeans(query_labels)
    for rows, apart in between(query, gallery):
        hide(apart, query_index[rows])
        sums.add(rows, apart, query_labels[rows].cpu()[:, None] == gallery_labels.cpu())
    found = sums.ratios()
    return {"tightness": fmean(found.values()) if found else None}


def confused(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """`{"identity_confusion": …}` of the queries that stand in the gallery."""
    known = query_index.cpu() >= 0
    place = query_index.cpu()[known]
    lost = 0
    for rows, apart in between(query.cpu()[known], gallery):
        own = apart.gather(1, place[rows][:, None])
        hide(apart, place[rows])
        lost += int((apart.amin(1) <= own[:, 0]).sum())
    return {"identity_confusion": lost / len(place) if len(place) else None}


class PairMeans:
    """Mean distances inside each class and to all others, from chunks of distances.

    Args:
        labels: (N,) of the pictures that ask.
    """

    def __init__(self, labels: Tensor) -> None:
        self.names, self.members = labels.cpu().unique(return_inverse=True)
        self.inside, self.outside = torch.zeros(2, 2, len(self.names)).double()

    def add(self, rows: Tensor, apart: Tensor, like: Tensor) -> None:
        """Count the distances of some pictures.

        Args:
            rows: (n,) which of those that ask.
            apart: (n, M), infinite where there is no pair.
            like: (n, M) whether the labels are the same.
        """
        there = apart.isfinite()
        for sums, pairs in ((self.inside, there & like), (self.outside, there & ~like)):
            sums[0].index_add_(0, self.members[rows], apart.where(pairs, 0).sum(1))
            sums[1].index_add_(0, self.members[rows], pairs.sum(1).double())

    def ratios(self) -> dict[int, float]:
        """By label, inside over outside, where both are defined and outside is not 0."""
        inside, outside = (sums[0] / sums[1] for sums in (self.inside, self.outside))
        each = zip(self.names.tolist(), (inside / outside).tolist(), outside.tolist(), strict=True)
        return {label: ratio for label, ratio, far in each if ratio == ratio and far > 0}


def between(query: Tensor, gallery: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of the queries and their distances to the whole gallery, chunk by chunk, on the CPU.

    Args:
        query: (Nq, D).
        gallery: (Ng, D).

    Raises:
        DmltkError: for embeddings that are not finite.
    """
    refuse_non_finite(query, "query")
    refuse_non_finite(gallery, "gallery")
    one, two = query.cpu().double(), gallery.cpu().double()
    # of whole numbers (pixels) matrix products are exact and many times quicker
    largest = max((float(side.abs().max()) for side in (one, two) if side.numel()), default=0.0)
    whole = all(bool((side == side.round()).all()) for side in (one, two))
    exact = whole and 4 * one.shape[1] * largest**2 < EXACT
    mode = "use_mm_for_euclid_dist" if exact else "donot_use_mm_for_euclid_dist"
    for rows in torch.arange(len(one)).split(max(1, CELLS // max(len(two), 1))):
        if not len(rows):
            return
        yield rows, torch.cdist(one[rows], two, compute_mode=mode)


def hide(apart: Tensor, place: Tensor) -> None:
    """Make the distance of each row to its own place infinite, where it has one.

    Args:
        apart: (n, Ng), written into.
        place: (n,) own rows, -1 for none.
    """
    known = (place >= 0).nonzero().flatten().cpu()
    apart[known, place.cpu()[known]] = torch.inf
