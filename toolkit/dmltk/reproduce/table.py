"""A published row beside what was measured, and whether its claim holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Sort = Literal["exact", "claim", "weights"]
MEANINGS = {
    "exact": "an identity: the same figure wherever it is computed",
    "claim": "a statement about an order or a collapse: it should hold for other weights too",
    "weights": "a figure that hangs on the page's own weights or pictures: near is enough",
}


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        name: what is measured.
        published: the figures of the source, as it prints them.
        ours: a figure or several, by seed.
        sort: what kind of statement it is; see MEANINGS.
        verdict: for each seed, whether the claim holds; empty where there is none to check.
        note: what else a reader should know.
    """

    name: str
    published: str
    ours: tuple[str, ...]
    sort: Sort
    verdict: tuple[bool, ...] = ()
    note: str = ""

    @property
    def holds(self) -> str:
        """``3 of 3``, or nothing where there is no claim."""
        return f"{sum(self.verdict)} of {len(self.verdict)}" if self.verdict else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "holds": self.holds}


def claim(
    name: str,
    published: str,
    values: Sequence[Any],
    holds: Callable[[Any], bool],
    shown: Callable[[Any], str] = str,
    note: str = "",
) -> Row:
    """A row of sort ``claim``: one value a seed, and whether it holds for each.

    Args:
        name: what is measured.
        published: the source's figures.
        values: one a seed.
        holds: whether a value is as claimed.
        shown: a value as text.
        note: what else a reader should know.
    """
    return Row(
        name,
        published,
        tuple(shown(value) for value in values),
        "claim",
        tuple(bool(holds(value)) for value in values),
        note,
    )
