"""Goals of ranking: raise or lower one item in a query's list.

They are robrank's; distances are Euclidean, and a picture's own row of the reference is
left out by index. What a goal reports (`figures`) counts ties against the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks.gallery import Gallery, distances, share_nearer
from dmltk.attacks.probe import Objective, Probe
from dmltk.batch import Batch
from dmltk.errors import UserError

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(gt=0, le=1)]

FRIENDS = 5
"""Neighbours that a semantics-preserving attack keeps in place."""


class QueryMoves:
    """The query is attacked: it draws candidates near, or drives them away.

    Args:
        gallery: what it ranks.
        chosen: (N, M) candidates.
        up: whether they are to rise.
    """

    def __init__(self, gallery: Gallery, chosen: Tensor, up: bool) -> None:
        self.gallery, self.chosen, self.up = gallery, chosen, up
        self.count = gallery.others.sum(1)

    def __call__(self, z: Tensor) -> Tensor:
        others = distances(z, self.gallery.pool)
        total = z.new_zeros(len(z))
        for bound in others.gather(1, self.chosen).unbind(1):
            gap = bound[:, None] - others if self.up else others - bound[:, None]
            total = total + gap.clamp_min(0).masked_fill(~self.gallery.others, 0).sum(1)
        return total / (self.count * self.chosen.shape[1])

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`prank`: the share of items nearer than the candidates, their mean."""
        others = distances(z, self.gallery.pool)
        ranks = []
        for row in self.chosen.split(1, 1):
            rest = self.gallery.others.scatter(1, row, False)
            ranks.append(share_nearer(others, others.gather(1, row), rest, ties=not self.up))
        return {"prank": torch.stack(ranks).mean(0)}


class _CandidateMoves:
    """The candidate is attacked: it comes near queries, or leaves them.

    Args:
        gallery: what the queries rank, the candidate's clean row left out.
        queries: (N, W) rows.
        up: whether it is to rise.
    """

    def __init__(self, gallery: Gallery, queries: Tensor, up: bool) -> None:
        self.up = up
        self.queries = gallery.pool[queries]
        self.allowed = [gallery.others.scatter(1, row[:, None], False) for row in queries.unbind(1)]
        self.others = [distances(q, gallery.pool) for q in self.queries.unbind(1)]

    def _gaps(self, z: Tensor) -> list[tuple[Tensor, Tensor]]:
        own = torch.linalg.vector_norm(self.queries - z[:, None], dim=2).unbind(1)
        return [(bound[:, None], other) for bound, other in zip(own, self.others, strict=True)]

    def __call__(self, z: Tensor) -> Tensor:
        total = z.new_zeros(len(z))
        for (bound, other), allowed in zip(self._gaps(z), self.allowed, strict=True):
            gap = bound - other if self.up else other - bound
            inside = gap.clamp_min(0).masked_fill(~allowed, 0).sum(1)
            total = total + inside / allowed.sum(1).clamp_min(1)
        return total / len(self.others)

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`prank`: the share of items nearer to the queries than the candidate, their mean."""
        ranks = []
        for (bound, other), allowed in zip(self._gaps(z), self.allowed, strict=True):
            ranks.append(share_nearer(other, bound, allowed, ties=not self.up))
        return {"prank": torch.stack(ranks).mean(0)}


@dataclass(frozen=True)
class _Ranked:
    """Draws items of the reference; what moves, and whether it is to rise, is the goal's own."""

    name: ClassVar[str]
    moves: ClassVar[type[QueryMoves | _CandidateMoves]]
    up: ClassVar[bool]
    count: Count = 1

    @property
    def share(self) -> float:
        """Of the reference, nearest first, from which items are drawn."""
        return 1.0

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Draws the candidates, or the queries, once."""
        gallery = Gallery.of(probe, batch, self.name)
        chosen = gallery.draw(self.count, self.share, generator, self.name)
        return self.moves(gallery, chosen, self.up)


@dataclass(frozen=True)
class _Lowered(_Ranked):
    """Draws from the nearest items."""

    up: ClassVar[bool] = False
    top: Share = 0.01

    @property
    def share(self) -> float:
        """Of the reference, nearest first, from which items are drawn."""
        return self.top


@dataclass(frozen=True)
class QaUp(_Ranked):
    """Query attack, raise: bring the query nearer to candidates than to all other items.

    loss = mean over candidates c and items x of [d(q, c) - d(q, x)]+, the candidates drawn from
    the reference. Reports `prank`, the share of items nearer than the candidate.

    Args:
        count: candidates a query.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense, QA+
    """

    name: ClassVar[str] = "qa-up"
    moves: ClassVar[type[QueryMoves]] = QueryMoves
    up: ClassVar[bool] = True


@dataclass(frozen=True)
class QaDown(_Lowered, QaUp):
    """Query attack, lower: move the query away from candidates of its own neighbourhood.

    loss = mean over candidates c and items x of [d(q, x) - d(q, c)]+, the candidates drawn from
    the nearest. Reports `prank`, the share of items nearer than the candidate.

    Args:
        count: candidates a query.
        top: the share of the reference, nearest first, from which they are drawn.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense, QA-
    """

    name: ClassVar[str] = "qa-down"


class _KeepingFriends:
    """A query attack that also keeps other items at the top.

    Args:
        attack: on the candidates.
        friends: that raises what is to stay.
        xi: its weight.
    """

    def __init__(self, attack: QueryMoves, friends: QueryMoves, xi: float) -> None:
        self.attack, self.friends, self.xi = attack, friends, xi

    def __call__(self, z: Tensor) -> Tensor:
        return self.attack(z) + self.xi * self.friends(z)

    def figures(self, z: Tensor) -> dict[str, Tensor]:
        """`prank` of the candidates and `prank_kept` of what is to stay."""
        return {**self.attack.figures(z), "prank_kept": self.friends.figures(z)["prank"]}


@dataclass(frozen=True)
class _Keeping(_Ranked):
    """Keeps the nearest items that are no candidates; fewer than five where there are."""

    xi: Annotated[float, Meta(ge=0)] = 100.0

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Draws the candidates and finds what is to stay, once."""
        gallery = Gallery.of(probe, batch, self.name)
        chosen = gallery.draw(self.count, self.share, generator, self.name)
        free = gallery.others.scatter(1, chosen, False)
        kept = min(FRIENDS, int(free.sum(1).min()))
        if kept == 0:
            raise UserError(
                f"{self.name} keeps items beside its candidates and the reference has none left:"
                " ask for fewer candidates, or give it a larger reference"
            )
        friends = QueryMoves(gallery, gallery.order(free)[:, :kept], True)
        return _KeepingFriends(QueryMoves(gallery, chosen, self.up), friends, self.xi)


@dataclass(frozen=True)
class SpQaUp(_Keeping, QaUp):
    """Semantics-preserving query attack, raise: as qa-up, while the nearest items stay on top.

    loss = qa-up(candidates) + xi * qa-up(the five nearest items). robrank raises xi with the
    second term, min(exp(kappa * loss), 1e9); here it is a number.

    Args:
        count: candidates a query.
        xi: weight of what is to stay.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense, SP-QA+
    """

    name: ClassVar[str] = "sp-qa-up"


@dataclass(frozen=True)
class SpQaDown(_Keeping, QaDown):
    """Semantics-preserving query attack, lower: as qa-down, while other near items stay on top.

    loss = qa-down(candidates) + xi * qa-up(five more of the nearest). robrank raises xi with the
    second term, min(exp(kappa * loss), 1e9); here it is a number.

    Args:
        count: candidates a query.
        top: the share of the reference, nearest first, from which they are drawn.
        xi: weight of what is to stay.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense, SP-QA-
    """

    name: ClassVar[str] = "sp-qa-down"


@dataclass(frozen=True)
class CaUp(_Ranked):
    """Candidate attack, raise: the picture climbs in the lists of queries that it is far from.

    loss = mean over queries q and items x of [d(q, c) - d(q, x)]+, c the attacked picture, the
    queries drawn from the reference and x neither of the two. Reports `prank`, the share of items
    nearer than c.

    Args:
        count: queries a picture.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense, CA+
    """

    name: ClassVar[str] = "ca-up"
    moves: ClassVar[type[_CandidateMoves]] = _CandidateMoves
    up: ClassVar[bool] = True


@dataclass(frozen=True)
class CaDown(_Lowered, CaUp):
    """Candidate attack, lower: the picture falls in the lists of queries that it is near to.

    loss = mean over queries q and items x of [d(q, x) - d(q, c)]+, c the attacked picture, the
    queries drawn from its nearest and x neither of the two. Reports `prank`, the share of items
    nearer than c.

    Args:
        count: queries a picture.
        top: the share of the reference, nearest first, from which they are drawn.

    Source: Zhou et al. 2020, Adversarial ranking attack and defense, CA-
    """

    name: ClassVar[str] = "ca-down"
