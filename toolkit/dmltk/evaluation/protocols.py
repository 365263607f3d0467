"""Who is attacked, against which gallery: the ways to set up one retrieval.

A protocol takes the embeddings of the test split, clean and adversarial, and lays out the two
sides that the metrics compare. It says in `attacked` which pictures have to be attacked for it:
`none`, `query` (any queries, each on its own) or `all`.

Where the split sets a gallery apart, its queries stand on one side and its gallery on the other;
otherwise every picture stands on both, and a query's own row is left out by index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dmltk.errors import UserError


@dataclass(frozen=True)
class Embedded:
    """Embeddings of pictures of a split.

    Args:
        embeddings: (N, D).
        labels: (N,) integers.
        index: (N,) each picture's own row in the split; every row at most once.
        is_query: (N,) bool, which are queries and not of the gallery; None: all are both.
    """

    embeddings: Tensor
    labels: Tensor
    index: Tensor
    is_query: Tensor | None = None

    @property
    def queries(self) -> Embedded:
        """The pictures that ask."""
        return self if self.is_query is None else self._only(self.is_query)

    @property
    def gallery(self) -> Embedded:
        """The pictures that are found."""
        return self if self.is_query is None else self._only(~self.is_query)

    def _only(self, some: Tensor) -> Embedded:
        return Embedded(self.embeddings[some], self.labels[some], self.index[some])


@dataclass(frozen=True)
class Sides:
    """The two sides of a retrieval, as the metrics take them.

    Args:
        query: (Nq, D) embeddings.
        gallery: (Ng, D) embeddings.
        query_labels: (Nq,) integers.
        gallery_labels: (Ng,) integers.
        query_index: (Nq,) each query's own row in the gallery, -1 where it has none.
    """

    query: Tensor
    gallery: Tensor
    query_labels: Tensor
    gallery_labels: Tensor
    query_index: Tensor

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """In the order in which metrics take them."""
        return self.query, self.gallery, self.query_labels, self.gallery_labels, self.query_index


@dataclass(frozen=True)
class Layout:
    """A protocol: which pictures are attacked, and how the sides are laid out.

    Args:
        attacked: the pictures that need an adversarial twin.
        arrange: gives the sides from the clean and the adversarial embeddings.
    """

    attacked: Literal["none", "query", "all"]
    arrange: Callable[[Embedded, Embedded | None], Sides]

    def __call__(self, clean: Embedded, adversarial: Embedded | None = None) -> Sides:
        """The sides, from the clean split and what of it was attacked."""
        return self.arrange(clean, adversarial)


def clean() -> Layout:
    """No attack: every test picture is a query against all the others, or the gallery set apart."""
    return Layout("none", lambda clean, adversarial: against(clean.queries, clean.gallery))


def query() -> Layout:
    """The queries are attacked, the gallery is clean: what a user's upload meets.

    Any part of the queries may have been attacked; those are asked. A query's own clean picture
    is left out of the gallery by index.
    """
    return Layout("query", _adversarial_queries)


def gallery() -> Layout:
    """The gallery is attacked, the queries are clean: what a poisoned index answers.

    Every picture of the gallery is replaced by its adversarial twin; a query's own twin is left
    out by index.
    """
    return Layout("all", _adversarial_gallery)


def all_() -> Layout:
    """Every test picture is replaced by its adversarial twin, as query and in the gallery.

    Source: MDProp's "adversarial data".
    """
    return Layout("all", _adversarial_everywhere)


def against(queries: Embedded, gallery: Embedded) -> Sides:
    """The sides of a retrieval of queries from a gallery, each query's own row left out."""
    return Sides(
        queries.embeddings,
        gallery.embeddings,
        queries.labels,
        gallery.labels,
        places(queries.index.cpu(), gallery.index.cpu()),
    )


def _adversarial_queries(clean: Embedded, adversarial: Embedded | None) -> Sides:
    return against(_needed(adversarial, "query").queries, clean.gallery)


def _adversarial_gallery(clean: Embedded, adversarial: Embedded | None) -> Sides:
    return against(clean.queries, _whole(clean, adversarial, "gallery").gallery)


def _adversarial_everywhere(clean: Embedded, adversarial: Embedded | None) -> Sides:
    attacked = _whole(clean, adversarial, "all")
    return against(attacked.queries, attacked.gallery)


def _whole(clean: Embedded, adversarial: Embedded | None, name: str) -> Embedded:
    """The adversarial twins, of which there must be one for every clean picture."""
    attacked = _needed(adversarial, name)
    if not torch.equal(attacked.index.cpu().sort().values, clean.index.cpu().sort().values):
        raise UserError(
            f"protocol '{name}' replaces every picture by its adversarial twin, but "
            f"{len(attacked.index)} of {len(clean.index)} were attacked: attack them all, or use "
            "protocol 'query'"
        )
    return attacked


def _needed(adversarial: Embedded | None, name: str) -> Embedded:
    if adversarial is None:
        raise UserError(f"protocol '{name}' needs adversarial pictures: name an attack")
    return adversarial


def places(wanted: Tensor, index: Tensor) -> Tensor:
    """Where each of `wanted` stands in `index`, -1 where it does not."""
    if len(index) == 0:
        return torch.full_like(wanted, -1)
    ordered, order = index.sort()
    place = torch.searchsorted(ordered, wanted).clamp(max=len(index) - 1)
    return order[place].where(ordered[place] == wanted, torch.tensor(-1))
