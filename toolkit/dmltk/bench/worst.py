"""The worst case per query: over all attacks of a suite, and over every smaller bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["Struck", "worst_case"]


@dataclass(frozen=True)
class Struck:
    """Which queries an attack made miss.

    Args:
        suite: it belongs to.
        norm: of its threat.
        eps: its bound.
        index: (N,) the queries that it met.
        hit: (N,) whether each is still found.
    """

    suite: str
    norm: str
    eps: float
    index: Tensor
    hit: Tensor


def worst_case(
    struck: Sequence[Struck], queries: Tensor, found: Tensor, counted: Tensor
) -> list[dict[str, Any]]:
    """Recall@1 under the strongest attack on each query, for every suite, norm and bound.

    A query that a bound has broken counts as broken at every larger one of the same norm: its
    picture lies inside that ball too. A query that is not found clean counts as broken.

    Args:
        struck: what single attacks did.
        queries: (Q,) rows that were up for attack.
        found: (P,) by row, whether it is found clean.
        counted: (P,) by row, whether it has a mate to be found.

    Returns:
        One entry a suite (all together under `suite: null`), norm and bound; `broken` counts the
        queries that were found clean and are lost.
    """
    entries = []
    for suite, norm in _groups(struck):
        some = [s for s in struck if s.norm == norm and suite in (None, s.suite)]
        for eps in sorted({s.eps for s in some}):
            standing = found.clone()
            for one in some:
                if one.eps <= eps:
                    standing[one.index[~one.hit]] = False
            asked = queries[counted[queries]]
            recall = standing[asked].double().mean().item() if len(asked) else None
            broken = int((found[asked] & ~standing[asked]).sum())
            entries.append(
                {
                    "suite": suite,
                    "norm": norm,
                    "eps": eps,
                    "protocol": "query",
                    "metrics": {"recall@1": recall},
                    "counts": {"queries": len(asked), "broken": broken},
                }
            )
    return entries


def _groups(struck: Iterable[Struck]) -> list[tuple[str | None, str]]:
    """Every suite with its norms, and all suites together where there are several."""
    pairs = list(dict.fromkeys((s.suite, s.norm) for s in struck))
    together = dict.fromkeys(norm for _, norm in pairs)
    alone = [norm for norm in together if sum(norm == other for _, other in pairs) == 1]
    found: list[tuple[str | None, str]] = list(pairs)
    return found + [(None, norm) for norm in together if norm not in alone]
