"""Figures of retrieval and of the shape of an embedding space.

A metric is called with the two sides of a protocol and gives numbers by name:
`f(query, gallery, query_labels, gallery_labels, query_index) -> {"recall@1": .71}`.
`query_index` holds each query's own row in the gallery, which is left out by index (never by
distance, so duplicates stay), or -1 where it has none. Items are ranked by squared Euclidean
distance, which for unit vectors is the order of the cosine. **Ties count against the model**: of
two gallery items equally far from a query, the one with another label ranks first, so a model
that maps everything to one point gets 0. What is not defined is None, never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
import torch
from torch import Tensor

from dmltk.errors import DmltkError

CELLS = 1 << 24
"""Most distances held at once: queries of a chunk times gallery items."""


Metric: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], dict[str, float | None]]
"""What a registered metric's factory returns; figures are fractions where they can be."""


def recall(ks: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] = (1, 2, 4, 8)) -> Recall:
    """Recall@k: the share of queries with one of their own label among the k nearest.

    Queries whose label occurs nowhere else in the gallery cannot succeed and are left out;
    `query_counts` says how many those are.

    Args:
        ks: the numbers of neighbours looked at; one figure `recall@k` each.

    Source: Jegou et al. 2011; as used in Musgrave et al. 2020, section 3.
    """
    return Recall(tuple(ks))


def map_at_r() -> Metric:
    """MAP@R: mean average precision over a query's R nearest, R the number it could find.

    Source: Musgrave et al. 2020, A Metric Learning Reality Check, section 3.2.
    """
    return mean_average_precision_at_r


def r_precision() -> Metric:
    """R-precision: the share of a query's own label among its R nearest, R what it could find.

    Source: Musgrave et al. 2020, A Metric Learning Reality Check, section 3.2.
    """
    return precision_at_r


def precision(k: Annotated[int, msgspec.Meta(ge=1)] = 10) -> Precision:
    """Precision@k: the mean share of the k nearest that are of the query's own class.

    Of all there are, where the gallery holds fewer than k. A class with fewer than k others cannot
    reach 1. Queries whose label occurs nowhere else are left out, as for recall@k.

    Args:
        k: the number of neighbours looked at; the figure is `precision@k`.

    Source: Manning et al. 2008, Introduction to Information Retrieval, section 8.4.
    """
    return Precision(k)


@dataclass(frozen=True)
class Recall:
    """Recall@k for several k from one pass: the rank of each query's first hit decides."""

    ks: tuple[int, ...]

    def __call__(
        self,
        query: Tensor,
        gallery: Tensor,
        query_labels: Tensor,
        gallery_labels: Tensor,
        query_index: Tensor,
    ) -> dict[str, float | None]:
        """`{"recall@k": share of the queries that could succeed}`."""
        ranks = first_hits(query, gallery, query_labels, gallery_labels, query_index)
        ranks = ranks[ranks > 0]
        return {
            f"recall@{k}": (ranks <= k).double().mean().item() if len(ranks) else None
            for k in self.ks
        }


@dataclass(frozen=True)
class Precision:
    """See :func:`precision`."""

    k: int

    def __call__(
        self,
        query: Tensor,
        gallery: Tensor,
        query_labels: Tensor,
        gallery_labels: Tensor,
        query_index: Tensor,
    ) -> dict[str, float | None]:
        """`{"precision@k": …}` over the queries that could succeed."""
        scores = []
        for distance, same in _chunks(query, gallery, query_labels, gallery_labels, query_index):
            there = distance.isfinite()
            share = own_share(distance, same, self.k)
            scores.append(share[(same & there).any(1)].cpu())
        every = torch.cat(scores) if scores else torch.zeros(0)
        return {f"precision@{self.k}": every.mean().item() if len(every) else None}


def own_share(distance: Tensor, same: Tensor, k: int) -> Tensor:
    """The share of each query's k nearest that have its label; ties count against it.

    Args:
        distance: (q, Ng), infinite where an item is left out.
        same: (q, Ng) whether an item has the query's label.
        k: at least 1; where a query has fewer items, all of them.

    Returns:
        (q,) float64; 0 where a query has no item.
    """
    depth = min(k, distance.shape[1])
    hits = distance.masked_fill(~same, torch.inf).topk(depth, 1, largest=False).values
    others = distance.masked_fill(same, torch.inf).topk(depth, 1, largest=False).values
    _, rank = _places(hits, others)
    items = distance.isfinite().sum(1).clamp(max=depth)
    inside = (rank <= items[:, None]) & hits.isfinite()
    return inside.sum(1).double() / items.clamp(min=1)


def first_hits(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> Tensor:
    """The rank of each query's nearest item with its label, counted from 1.

    Args:
        query: (Nq, D) embeddings.
        gallery: (Ng, D) embeddings.
        query_labels: (Nq,) integers.
        gallery_labels: (Ng,) integers.
        query_index: (Nq,) each query's own row in the gallery, -1 for none.

    Returns:
        (Nq,) integers on the CPU; 0 where the gallery holds nothing of the query's label.
    """
    ranks = []
    for distance, same in _chunks(query, gallery, query_labels, gallery_labels, query_index):
        hit = distance.masked_fill(~same, torch.inf).amin(1, keepdim=True)
        ahead = (distance.masked_fill(same, torch.inf) <= hit).sum(1)
        ranks.append((ahead + 1).masked_fill(hit[:, 0].isinf(), 0).cpu())
    return torch.cat(ranks) if ranks else torch.zeros(0, dtype=torch.long)


def mean_average_precision_at_r(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """`{"map@r": …}` over the queries that could succeed."""
    scores = []
    sides = (query, gallery, query_labels, gallery_labels, query_index)
    for place, rank, found, relevant in _ranked_hits(*sides):
        precision = (place / rank).where(found, torch.zeros(()).to(rank.device)).double()
        scores.append((precision.sum(1) / relevant)[relevant > 0].cpu())
    return {"map@r": torch.cat(scores).mean().item() if scores else None}


def precision_at_r(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """`{"r_precision": …}` over the queries that could succeed."""
    scores = []
    sides = (query, gallery, query_labels, gallery_labels, query_index)
    for _, _, found, relevant in _ranked_hits(*sides):
        scores.append((found.sum(1).double() / relevant)[relevant > 0].cpu())
    return {"r_precision": torch.cat(scores).mean().item() if scores else None}


def _ranked_hits(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For some queries at a time, of each one's items of its label from the nearest on:

    their place among themselves (m,), their rank in the gallery (q, m), whether that is among
    the R nearest (q, m), and R (q,).
    """
    for distance, same in _chunks(query, gallery, query_labels, gallery_labels, query_index):
        relevant = (same & distance.isfinite()).sum(1)
        most = int(relevant.max())
        if most == 0:
            continue
        hits = distance.masked_fill(~same, torch.inf).topk(most, 1, largest=False).values
        others = distance.masked_fill(same, torch.inf).topk(most, 1, largest=False).values
        place, rank = _places(hits, others)
        found = (rank <= relevant[:, None]) & (place <= relevant[:, None])
        yield place, rank, found, relevant


def _places(hits: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Of the nearest hits (q, m), nearest first: place among hits (m,), rank among all (q, m)."""
    place = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    return place, place + torch.searchsorted(others, hits, right=True)


def query_counts(
    query_labels: Tensor, gallery_labels: Tensor, query_index: Tensor
) -> dict[str, int]:
    """How many queries there are, and how many of them no retrieval figure can count.

    Args:
        query_labels: (Nq,) integers.
        gallery_labels: (Ng,) integers.
        query_index: (Nq,) each query's own row in the gallery, -1 for none.

    Returns:
        `{"queries": Nq, "excluded": those whose label is nowhere else in the gallery}`.
    """
    names, sizes = gallery_labels.cpu().unique(return_counts=True)
    labels, rows = query_labels.cpu(), query_index.cpu()
    if len(names) == 0:
        return {"queries": len(labels), "excluded": len(labels)}
    place = torch.searchsorted(names, labels).clamp(max=len(names) - 1)
    present = sizes[place].where(names[place] == labels, torch.zeros((), dtype=torch.long))
    own = (rows >= 0) & (gallery_labels.cpu()[rows.clamp(min=0)] == labels)
    return {"queries": len(labels), "excluded": int((present - own.long() == 0).sum())}


def _chunks(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> Iterator[tuple[Tensor, Tensor]]:
    """For some queries at a time: distances (q, Ng), infinite at the own row, and same label.

    A query's own squared length is left out of its distances: it moves none past another.
    """
    refuse_non_finite(query, "query")
    refuse_non_finite(gallery, "gallery")
    if len(gallery) == 0:
        raise DmltkError("the gallery is empty: there is nothing to retrieve")
    device = gallery.device
    gallery = gallery.float()
    squares = gallery.square().sum(1)
    gallery_labels = gallery_labels.to(device)
    rows = max(1, CELLS // len(gallery))
    for some in torch.arange(len(query)).split(rows):
        part = some.to(query.device)
        distance = torch.addmm(squares, query[part].to(device).float(), gallery.T, alpha=-2)
        own = query_index[some.to(query_index.device)].to(device)
        known = (own >= 0).nonzero()[:, 0]
        distance[known, own[known]] = torch.inf
        labels = query_labels[some.to(query_labels.device)].to(device)
        yield distance, labels[:, None] == gallery_labels[None]


def refuse_non_finite(embeddings: Tensor, side: str) -> None:
    """Raise a DmltkError for embeddings of which no figure can be given."""
    bad = int((~embeddings.isfinite()).any(1).sum())
    if bad:
        raise DmltkError(
            f"{bad} of {len(embeddings)} {side} embeddings hold NaN or infinity, so no figure "
            "can be given: look at the training log for where the loss became non-finite"
        )
