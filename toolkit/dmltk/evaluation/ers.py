"""The empirical robustness score of ten ranking attacks."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

__all__ = ["Ers"]


@dataclass(frozen=True)
class Ers:
    """Ten figures and the score that they make.

    A model whose embeddings have collapsed scores near 48, so the score says nothing without clean
    recall and the collapse flag; some terms leave 0…100, so it is also given with every term cut.

    Args:
        ca_up: share of items nearer to a query than the raised candidate, in [0, 1].
        ca_down: the same of the lowered candidate.
        qa_up: share of items nearer than a candidate to the query that raises it.
        qa_down: the same where it lowers it.
        cosine: of the query to the target of `tma`, in [-1, 1].
        shift: how far `flee` moves the embedding, in [0, 2] for unit length.
        recall_flee: recall@1 under `flee`.
        recall_ltm: recall@1 under `ltm`.
        recall_gtm: recall@1 under `gtm`.
        retained: share of queries whose first item stays among the first four under `gtt`.

    Source: Zhou and Patel 2022, Enhancing adversarial robustness for deep metric learning
    """

    ca_up: float
    ca_down: float
    qa_up: float
    qa_down: float
    cosine: float
    shift: float
    recall_flee: float
    recall_ltm: float
    recall_gtm: float
    retained: float

    @property
    def terms(self) -> tuple[float, ...]:
        """Each meant as 0 (broken) to 100 (untouched)."""
        return (
            200 * self.ca_up,
            100 * (1 - self.ca_down),
            200 * self.qa_up,
            100 * (1 - self.qa_down),
            100 * (1 - self.cosine),
            100 * (2 - self.shift) / 2,
            100 * self.recall_flee,
            100 * self.recall_ltm,
            100 * self.recall_gtm,
            100 * self.retained,
        )

    @property
    def score(self) -> float:
        """The mean of the ten terms, as published."""
        return fmean(self.terms)

    @property
    def clipped(self) -> float:
        """The mean of the ten terms, each cut to 0…100."""
        return fmean(min(max(term, 0.0), 100.0) for term in self.terms)

    def plain(self) -> dict[str, Any]:
        """As it stands in ``results.json``."""
        return {"terms": list(self.terms), "score": self.score, "clipped": self.clipped}
