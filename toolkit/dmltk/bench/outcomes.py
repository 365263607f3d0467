"""What a bench leaves: the entries of ``results.json`` and a line for every query."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dmltk.bench.engine import Victim
from dmltk.bench.plan import Task
from dmltk.bench.state import Outcome
from dmltk.data.split import Split
from dmltk.evaluation.evaluate import measured, of_split
from dmltk.evaluation.metrics import first_hits
from dmltk.evaluation.protocols import Embedded, Sides, clean, query

__all__ = ["Ledger", "queries_csv"]


@dataclass(frozen=True)
class Ledger:
    """Turns outcomes into entries.

    Args:
        split: the pictures.
        clean: embeddings of the whole split.
        metrics: callables that return figures by name.
        found: (N,) which pictures are found clean.
        route: the name that entries carry.
    """

    split: Split
    clean: Embedded
    metrics: Sequence[Any]
    found: Tensor
    route: str

    def clean_entries(self, queries: Tensor) -> list[dict[str, Any]]:
        """The whole clean split, and the queries alone before any attack: the control."""
        head = {"suite": None, "name": "clean", "attack": None, "eps": 0.0, "norm": None}
        asked = of_split(self.split, queries, self.clean.embeddings[queries])
        sides = {"clean": clean()(self.clean), "query": query()(self.clean, asked)}
        return [
            {**head, **measured(self.metrics, both, name, self.route)}
            for name, both in sides.items()
        ]

    def entries(self, task: Task, outcome: Outcome) -> list[dict[str, Any]]:
        """One entry a protocol; of a standing attack only its counts."""
        head = {
            "suite": task.suite or None,
            "name": task.name,
            "attack": task.spec,
            "eps": task.eps,
            "norm": task.norm,
            "access": task.access,
            "standing": task.standing,
        }
        adversarial = of_split(self.split, outcome.index, outcome.embeddings)
        found = []
        for name, layout in task.protocols.items():
            sides = layout(self.clean, adversarial)
            stats = self._stats(outcome, sides, adversarial.queries.index)
            entry = measured(() if task.standing else self.metrics, sides, name, self.route)
            found.append({**head, **entry, "attack_stats": stats})
        return found

    def _stats(self, outcome: Outcome, sides: Sides, index: Tensor) -> dict[str, Any]:
        hit = first_hits(*sides.arguments) == 1
        before = self.found[index]
        standing = int(before.sum())
        lost = int((before & ~hit).sum())
        return {
            "success": lost / standing if standing else None,
            "attacked": len(outcome.index),
            "lost": lost,
            "linf_max": outcome.linf.max().item(),
            "l2_max": outcome.l2.max().item(),
            **_means(outcome, ""),
            "before": _means(outcome, "before."),
            **outcome.counters,
        }


def _means(outcome: Outcome, prefix: str) -> dict[str, float]:
    """The means of what a goal reported, of the names that begin so (and have no other dot)."""
    return {
        name.removeprefix(prefix): value.double().mean().item()
        for name, value in outcome.figures.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }


def queries_csv(
    split: Split,
    routes: Mapping[str, tuple[Victim, Sequence[tuple[Task, Outcome]]]],
    rows: Sequence[int],
) -> str:
    """A line for every query and attack: who is found before and after.

    Args:
        split: the pictures.
        routes: by route, the model and what each attack did to it.
        rows: the queries that were up for attack.

    Returns:
        CSV with row, class, route, suite, attack, eps, the rank of the first hit and the nearest
        item before and after, and the largest change.
    """
    index, labels = torch.as_tensor(rows), split.labels
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["row", "class", "route", "suite", "attack", "eps", "rank_before", "nearest_before"]
    writer.writerow([*head, "rank_after", "nearest_after", "linf"])
    for route, (victim, tasks) in routes.items():
        unharmed = _found(victim, labels, index, victim.clean.embeddings[index])
        before = dict(zip(rows, zip(*unharmed, strict=True), strict=True))
        for task, outcome in tasks:
            asked = torch.isin(outcome.index, index)
            attacked = outcome.index[asked]
            after = _found(victim, labels, attacked, outcome.embeddings[asked])
            columns = (attacked.tolist(), *after, outcome.linf[asked].tolist())
            for row, rank, nearest, linf in zip(*columns, strict=True):
                name = split.names[int(labels[row])]
                place = [row, name, route, task.suite, task.name, f"{task.eps:.6g}"]
                writer.writerow([*place, *before[row], rank, nearest, f"{linf:.6g}"])
    return out.getvalue()


def _found(victim: Victim, labels: Tensor, index: Tensor, z: Tensor) -> tuple[list[int], list[int]]:
    """The rank of each query's first hit, and the row of its nearest item, its own left out."""
    ranks = victim.ranks(index, z, labels[index])
    gallery = victim.clean.gallery
    nearest = []
    for part, rows in zip(z.split(1024), index.split(1024), strict=True):
        distance = torch.cdist(part, gallery.embeddings)
        distance[rows[:, None] == gallery.index] = torch.inf
        nearest.append(gallery.index[distance.argmin(1)])
    return ranks.tolist(), torch.cat(nearest).tolist()
