"""Judge an embedder: clean, then under each attack, by every protocol and metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dmltk import seeds
from dmltk.batch import Batch, Reference
from dmltk.data.split import Split, load
from dmltk.evaluation.metrics import first_hits, query_counts
from dmltk.evaluation.protocols import Embedded, Sides, against, places

Progress = Callable[[str, int, int], None]
Evaluation = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """An attack to be judged by.

    Args:
        name: short, unique in an evaluation.
        spec: as it was asked for.
        attack: built; targets come from the reference.
    """

    name: str
    spec: str
    attack: Any


@dataclass(frozen=True)
class Judge:
    """What an embedder is judged on and by.

    Args:
        split: the pictures, perhaps with a gallery set apart.
        protocols: by name.
        metrics: callables that return figures by name.
        batch: pictures a pass.
        rows: the rows that are attacked, in increasing order.
        generator: gives the generator for an attack's name and a batch's first row.
        progress: told what is going on, how far, of how many.
        route: the name that results carry.
    """

    split: Split
    protocols: Mapping[str, Any]
    metrics: Sequence[Any]
    batch: int
    rows: Sequence[int]
    generator: Callable[[str, int], torch.Generator]
    progress: Progress
    route: str = "main"

    def __call__(self, embed: nn.Module, trials: Sequence[Trial]) -> list[Evaluation]:
        """All evaluations, in the form of ``results.json``.

        Args:
            embed: the embedder; it is put in eval mode.
            trials: attacks; each one's pictures are made once and serve every protocol.
        """
        embed.eval()
        clean = self.embed(embed)
        unattacked = {k: p for k, p in self.protocols.items() if p.attacked == "none"}
        attacked = {k: p for k, p in self.protocols.items() if p.attacked != "none"}
        found = [
            self._evaluation(None, name, protocol(clean)) for name, protocol in unattacked.items()
        ]
        if not attacked or not trials:
            return found
        unharmed = torch.zeros(len(self.split), dtype=torch.bool)
        unharmed[clean.queries.index] = self._hits(against(clean.queries, clean.gallery))
        for trial in trials:
            adversarial, stats = self.attack(embed, trial, clean)
            for name, protocol in attacked.items():
                sides = protocol(clean, adversarial)
                entry = self._evaluation(trial, name, sides)
                before = unharmed[adversarial.queries.index]
                lost = int((before & ~self._hits(sides)).sum())
                success = lost / int(before.sum()) if before.any() else None
                found.append({**entry, "attack_stats": {"success": success, **stats}})
        return found

    def figures(self, embed: nn.Module) -> dict[str, float | None]:
        """The metrics of the clean split alone."""
        embed.eval()
        clean = self.embed(embed)
        return figures(self.metrics, against(clean.queries, clean.gallery))

    def embed(self, embed: nn.Module) -> Embedded:
        """The whole split, clean."""
        parts, rows = [], []
        with torch.no_grad():
            for images, _, index in self._batches("embed", range(len(self.split)), embed):
                parts.append(embed(images).float().cpu())
                rows.append(index.cpu())
        return self._embedded(parts, rows)

    def attack(
        self, embed: nn.Module, trial: Trial, clean: Embedded
    ) -> tuple[Embedded, dict[str, float]]:
        """The attacked rows' embeddings, and what the attack cost.

        Attacks refer to the gallery; a query that is not in it has the index -1 there.
        `lipschitz` is the largest ‖f(x+δ)−f(x)‖₂ / ‖δ‖∞ seen: a lower bound of the local constant.
        """
        parts: list[Tensor] = []
        rows: list[Tensor] = []
        gallery = clean.gallery
        stats = {"linf_max": 0.0, "lipschitz": 0.0}
        stats |= dict.fromkeys(("forwards", "backwards", "zero_gradients"), 0)
        for images, labels, index in self._batches(trial.name, self.rows, embed):
            device = images.device
            reference = Reference(gallery.embeddings.to(device), gallery.labels.to(device))
            rows.append(index.cpu())
            place = places(rows[-1], gallery.index).to(device)
            batch = Batch(images, labels, place, reference)
            draws = self.generator(trial.name, int(index[0]))
            result = trial.attack(embed, batch, generator=draws)
            with torch.no_grad():
                parts.append(embed(result.images).float().cpu())
            moved = (parts[-1] - clean.embeddings[rows[-1]]).norm(dim=1)
            steep = moved / result.linf.cpu().clamp_min(torch.finfo(torch.float32).tiny)
            steep = steep.where(result.linf.cpu() > 0, torch.zeros(()))
            stats["linf_max"] = max(stats["linf_max"], float(result.linf.max()))
            stats["lipschitz"] = max(stats["lipschitz"], float(steep.max()))
            for key in ("forwards", "backwards", "zero_gradients"):
                stats[key] += int(getattr(result, key))
        return self._embedded(parts, rows), stats

    def _embedded(self, parts: Sequence[Tensor], rows: Sequence[Tensor]) -> Embedded:
        """What was embedded batch by batch, in the order of the split."""
        index, order = torch.cat(list(rows)).sort()
        return of_split(self.split, index, torch.cat(list(parts))[order])

    def _batches(
        self, doing: str, rows: Sequence[int], embed: nn.Module
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches of queries, then of what only is gallery: so neither draws for the other."""
        device = next((p.device for p in embed.parameters()), torch.device("cpu"))
        asked = set(self.split.queries)
        done = 0
        for kind in ([r for r in rows if r in asked], [r for r in rows if r not in asked]):
            for first in range(0, len(kind), self.batch):
                self.progress(doing, done, len(rows))
                some = kind[first : first + self.batch]
                done += len(some)
                part = load(self.split, some)
                yield part[0].to(device), part[1].to(device), part[2].to(device)
        self.progress(doing, len(rows), len(rows))

    def _evaluation(self, trial: Trial | None, protocol: str, sides: Sides) -> Evaluation:
        head: Evaluation = {"name": "clean", "attack": None, "eps": 0.0, "norm": None}
        if trial is not None:
            threat = trial.attack.threat
            head = {"name": trial.name, "attack": trial.spec}
            head |= {"eps": float(threat.largest), "norm": threat.norm}
        return {**head, **measured(self.metrics, sides, protocol, self.route)}

    @staticmethod
    def _hits(sides: Sides) -> Tensor:
        return first_hits(*sides.arguments) == 1


def of_split(split: Split, index: Tensor, embeddings: Tensor) -> Embedded:
    """Embeddings of some rows of a split.

    Args:
        split: the pictures.
        index: (N,) rows.
        embeddings: (N, D).
    """
    asks = split.is_query
    return Embedded(embeddings, split.labels[index], index, None if asks is None else asks[index])


def figures(metrics: Sequence[Any], sides: Sides) -> dict[str, float | None]:
    """What metrics say of a retrieval, by name."""
    found: dict[str, float | None] = {}
    for metric in metrics:
        found |= metric(*sides.arguments)
    return found


def measured(metrics: Sequence[Any], sides: Sides, protocol: str, route: str) -> Evaluation:
    """The part of an entry of ``results.json`` that a retrieval gives."""
    return {
        "split": "test",
        "protocol": protocol,
        "route": route,
        "metrics": figures(metrics, sides),
        "counts": query_counts(sides.query_labels, sides.gallery_labels, sides.query_index),
    }


def attacked_rows(pictures: int, limit: int, seed: int) -> list[int]:
    """The rows that are attacked, in increasing order: all, or `limit` of them drawn by a seed."""
    if not 0 < limit < pictures:
        return list(range(pictures))
    order = torch.randperm(pictures, generator=seeds.generator(seed, "limit"))
    return sorted(order[:limit].tolist())


def no_draws(name: str, first: int) -> torch.Generator:
    """The generator of a judge that attacks nothing."""
    return torch.Generator()
