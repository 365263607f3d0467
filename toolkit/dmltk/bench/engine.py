"""Runs the attacks of a plan, batch by batch, and keeps what they find."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from dmltk import seeds
from dmltk.batch import Batch, Reference
from dmltk.bench.plan import Task
from dmltk.bench.state import COUNTERS, Outcome, State
from dmltk.bench.worst import Struck
from dmltk.data.split import Split, load
from dmltk.errors import DmltkError
from dmltk.evaluation.metrics import first_hits
from dmltk.evaluation.protocols import Embedded, places

__all__ = ["AttackFailed", "Engine", "Victim"]

Progress = Callable[[str, int, int], None]
EXAMPLES = 4
"""Most pictures a batch keeps of queries that it made miss."""


class AttackFailed(DmltkError):
    """An attack that died; the bench goes on without it."""


@dataclass(frozen=True)
class Victim:
    """A model and what it makes of the clean test split.

    Args:
        embed: pictures to embeddings, in eval mode.
        clean: embeddings of the whole split, on the CPU.
    """

    embed: nn.Module
    clean: Embedded

    def ranks(self, index: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The rank of each query's first hit in the clean gallery; 0 where it has no mate."""
        gallery = self.clean.gallery
        own = places(index, gallery.index)
        return first_hits(embeddings, gallery.embeddings, labels, gallery.labels, own)


@dataclass(frozen=True)
class Engine:
    """Attacks the queries of one model and remembers who still stands.

    Args:
        split: the pictures.
        victim: the model that is judged.
        surrogate: the model on which transferred attacks are made.
        rows: the queries, in increasing order.
        batch: pictures a pass.
        seed: of every draw.
        state: what was found so far.
        progress: told what is going on, how far, of how many.
        save: told the task, the rows and the adversarial pictures of each batch.
        struck: which queries each task made miss; filled as it goes.
        found: (N,) which queries are found clean.
        counted: (N,) which queries have a mate to be found.
    """

    split: Split
    victim: Victim
    surrogate: Victim | None
    rows: Sequence[int]
    batch: int
    seed: int
    state: State
    progress: Progress
    save: Callable[[Task, Tensor, Tensor], None] | None = None
    struck: list[Struck] = field(default_factory=list)
    found: Tensor = field(init=False, repr=False)
    counted: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        index = torch.as_tensor(self.rows)
        ranks = self.ranks(index, self.victim.clean.embeddings[index])
        for name, holds in (("found", ranks == 1), ("counted", ranks > 0)):
            mask = torch.zeros(len(self.split), dtype=torch.bool)
            mask[index] = holds
            object.__setattr__(self, name, mask)

    def ranks(self, index: Tensor, embeddings: Tensor) -> Tensor:
        """The rank of each query's first hit in the clean gallery; 0 where it has no mate."""
        return self.victim.ranks(index, embeddings, self.split.labels[index])

    def batch_of(self, source: Victim, rows: Sequence[int]) -> Batch:
        """Pictures as a model's attacks take them: the reference is its own clean gallery."""
        device = _device(source.embed)
        images, labels, index = load(self.split, rows)
        gallery = source.clean.gallery
        reference = Reference(gallery.embeddings.to(device), gallery.labels.to(device))
        own = places(index, gallery.index)
        return Batch(images.to(device), labels.to(device), own.to(device), reference)

    def __call__(self, task: Task) -> Outcome | None:
        """Run a task, or take up what is kept of it; None where no query is left for it.

        Raises:
            AttackFailed: the attack did.
            DmltkError: what it found cannot be kept.
        """
        rows = self._rows(task)
        outcome = (self.state.load(task.key) or self._run(task, rows)) if rows else None
        self.struck.append(self._struck(task, outcome))
        return outcome

    def _rows(self, task: Task) -> list[int]:
        if task.standing:
            own = [s for s in self.struck if (s.suite, s.norm) == (task.suite, task.norm)]
            broken = {row for one in own for row in one.index[~one.hit].tolist()}
            return [row for row in self.rows if self.found[row] and row not in broken]
        if any(layout.attacked == "all" for layout in task.protocols.values()):
            return list(range(len(self.split)))
        return list(self.rows)

    def _struck(self, task: Task, outcome: Outcome | None) -> Struck:
        index, hit = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.bool)
        if outcome is not None:
            asked = torch.isin(outcome.index, torch.as_tensor(self.rows))
            index = outcome.index[asked]
            hit = self.ranks(index, outcome.embeddings[asked]) == 1
        return Struck(task.suite, task.norm, task.eps, index, hit)

    def _run(self, task: Task, rows: list[int]) -> Outcome:
        parts: list[Outcome] = []
        keys: list[str] = []
        title = f"{task.suite} {task.name} {task.eps * 255:.3g}/255".strip()
        for first in range(0, len(rows), self.batch):
            self.progress(title, first, len(rows))
            keys.append(f"{task.key}-{first}")
            kept = self.state.load(keys[-1])
            if kept is None:
                kept = self._strike(task, rows[first : first + self.batch])
                self.state.save(keys[-1], kept)
            parts.append(kept)
        self.progress(title, len(rows), len(rows))
        outcome = Outcome.joined(parts)
        self.state.close(task.key, keys, outcome)
        return outcome

    def _strike(self, task: Task, rows: list[int]) -> Outcome:
        source = self.surrogate if task.transfer else self.victim
        if source is None:
            raise DmltkError(f"{task.name} is made on a surrogate, and there is none")
        batch, index = self.batch_of(source, rows), torch.as_tensor(rows)
        draws = seeds.generator(self.seed, "bench", task.spec, task.eps, rows[0])
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            try:
                result = task.attack(source.embed, batch, generator=draws)
            except DmltkError as error:
                raise AttackFailed(str(error)) from error
        adversarial = result.images.to(_device(self.victim.embed))
        with torch.no_grad():
            embeddings = self.victim.embed(adversarial).float().cpu()
        if self.save is not None:
            self.save(task, index, result.images.cpu())
        figures: dict[str, Tensor] = {}
        if not task.transfer:
            before = self.victim.clean.embeddings[index].to(adversarial.device)
            figures = _figures(result, before, embeddings.to(adversarial.device))
        examples, shown = self._examples(task, batch.images, result.images, index, embeddings)
        return Outcome(
            index=index,
            embeddings=embeddings,
            linf=result.linf.float().cpu(),
            l2=result.l2.float().cpu(),
            figures={name: value.float().cpu() for name, value in figures.items()},
            examples=examples,
            example_rows=shown,
            counters={name: int(getattr(result, name)) for name in COUNTERS},
            notes=tuple(dict.fromkeys(str(warning.message) for warning in noted)),
        )

    def _examples(
        self, task: Task, clean: Tensor, images: Tensor, index: Tensor, embeddings: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A few lost queries as bytes with their rows; lost still when saved in 8 bit."""
        lost = self.found[index] & (self.ranks(index, embeddings) != 1)
        some = lost.nonzero()[:EXAMPLES, 0]
        if len(some) == 0:
            return torch.zeros(0, *images.shape[1:], dtype=torch.uint8), index[:0]
        place = some.to(images.device)
        saved = replace(task.attack.threat, quantize=8).quantized(images[place], clean[place])
        with torch.no_grad():
            again = self.victim.embed(saved.to(_device(self.victim.embed))).float().cpu()
        still = self.ranks(index[some], again) != 1
        return (saved.cpu()[still] * 255).round().to(torch.uint8), index[some][still]


def _figures(result: Any, before: Tensor, after: Tensor) -> dict[str, Tensor]:
    """What the goal reports of the pictures, and under `before.` what it would have without."""
    measure = getattr(result, "figures", None)
    if measure is None:
        return {}
    with torch.no_grad():
        clean = {f"before.{name}": value for name, value in measure(before).items()}
        return {**measure(after), **clean}


def _device(embed: nn.Module) -> torch.device:
    tensor: Any = next(embed.parameters(), None)
    return torch.device("cpu") if tensor is None else tensor.device
