"""What every protocol must do."""

from __future__ import annotations

import torch
from torch import Tensor

from dmltk.evaluation.protocols import Embedded, Sides
from dmltk.testing import samples
from dmltk.testing.part import Part

WAYS = ("none", "query", "all")


def use(part: Part) -> list[Tensor]:
    """The two sides of twelve clean and twelve adversarial pictures."""
    built = part.build()
    return list(_sides(part, _twins(built.attacked)).arguments)


def check_it_says_who_is_attacked(part: Part) -> None:
    """`attacked` is none, query or all."""
    found = part.build().attacked
    assert found in WAYS, f"attacked is {found!r}: it must be one of {', '.join(WAYS)}"


def check_both_sides_fit_together(part: Part) -> None:
    """Embeddings, labels and the queries' own rows have one entry each, and rows are right."""
    for apart in (False, True):
        sides = _sides(part, _twins(part.build().attacked, apart), apart)
        assert len(sides.query) == len(sides.query_labels) == len(sides.query_index) > 0
        assert len(sides.gallery) == len(sides.gallery_labels) > 0
        own = sides.query_index
        assert ((own >= -1) & (own < len(sides.gallery))).all(), "query_index leaves the gallery"
        known = own >= 0
        assert torch.equal(sides.gallery_labels[own[known]], sides.query_labels[known]), (
            "a query's own row in the gallery has another label than the query"
        )
        if apart:
            assert not known.any(), "queries have own rows in a gallery that is set apart"


def check_what_is_attacked_is_there(part: Part) -> None:
    """Adversarial embeddings appear on a side, unless nobody is attacked."""
    built = part.build()
    adversarial = _twins(built.attacked)
    if adversarial is None:
        return
    sides = _sides(part, adversarial)
    rows = torch.cat([sides.query, sides.gallery])
    there = [any(torch.equal(row, z) for row in rows) for z in adversarial.embeddings]
    assert all(there), "some adversarial embeddings are on neither side"


def check_part_of_the_queries_is_enough(part: Part) -> None:
    """A protocol that attacks queries asks those that were attacked."""
    built = part.build()
    if built.attacked != "query":
        return
    some = _twins("query")
    assert some is not None
    few = Embedded(some.embeddings[:5], some.labels[:5], some.index[:5])
    assert len(_sides(part, few).query) == 5, "of twelve queries five are attacked: it asks others"


def _clean(apart: bool = False) -> Embedded:
    z, labels = samples.embeddings()
    asks = torch.arange(12) < 6 if apart else None
    return Embedded(z, labels, torch.arange(12), asks)


def _twins(attacked: str, apart: bool = False) -> Embedded | None:
    if attacked == "none":
        return None
    clean = _clean(apart)
    z, _ = samples.embeddings(seed=1)
    return Embedded(z, clean.labels, clean.index, clean.is_query)


def _sides(part: Part, adversarial: Embedded | None, apart: bool = False) -> Sides:
    found: Sides = part.build()(_clean(apart), adversarial)
    return found
