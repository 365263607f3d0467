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
from dmltk.bench.state import Outcome, State
from dmltk.data.split import Split, load
from dmltk.errors import DmltkError
from dmltk.evaluation.metrics import first_hits
from dmltk.evaluation.protocols import Embedded, places

__all__ = ["Engine", "Victim"]

Progress = Callable[[str, int, int], None]
EXAMPLES = 4
"""Most pictures a batch keeps of queries that it made miss."""


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
        broken: by suite and norm, which pictures have been made to miss; filled as it goes.
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
    broken: dict[tuple[str, str], Tensor] = field(default_factory=dict)

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

    def hits(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """The queries of an outcome, and whether each is still found."""
        asked = torch.isin(outcome.index, torch.as_tensor(self.rows))
        index = outcome.index[asked]
        return index, self.ranks(index, outcome.embeddings[asked]) == 1

    def __call__(self, task: Task) -> Outcome | None:
        """Run a task, or take up what is kept of it; None where no query is left for it.

        Raises:
            DmltkError: the attack failed.
        """
        place = (task.suite, task.attack.threat.norm)
        broken = self.broken.setdefault(place, torch.zeros(len(self.split), dtype=torch.bool))
        rows = list(self.rows)
        if task.standing:
            rows = [row for row in rows if self.found[row] and not broken[row]]
        elif any(layout.attacked == "all" for layout in task.protocols.values()):
            rows = list(range(len(self.split)))
        if not rows:
            return None
        outcome = self.state.load(task.key)
        if outcome is None:
            outcome = self._run(task, rows)
        index, hit = self.hits(outcome)
        broken[index[~hit]] = True
        return outcome

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
        device = _device(source.embed)
        images, labels, index = (part.to(device) for part in load(self.split, rows))
        gallery = source.clean.gallery
        reference = Reference(gallery.embeddings.to(device), gallery.labels.to(device))
        draws = seeds.generator(self.seed, "bench", task.spec, task.eps, rows[0])
        own = places(index.cpu(), gallery.index).to(device)
        batch = Batch(images, labels, own, reference)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            result = task.attack(source.embed, batch, generator=draws)
        adversarial = result.images.to(_device(self.victim.embed))
        with torch.no_grad():
            embeddings = self.victim.embed(adversarial).float().cpu()
        if self.save is not None:
            self.save(task, index.cpu(), result.images.cpu())
        clean = self.victim.clean.embeddings[index.cpu()]
        figures = {} if task.transfer else _figures(result, clean.to(device), embeddings.to(device))
        examples, shown = self._examples(task, images, result.images, index.cpu(), embeddings)
        return Outcome(
            index=index.cpu(),
            embeddings=embeddings,
            linf=result.linf.float().cpu(),
            l2=result.l2.float().cpu(),
            figures={name: value.float().cpu() for name, value in figures.items()},
            examples=examples,
            example_rows=shown,
            counters={
                name: int(getattr(result, name))
                for name in ("forwards", "backwards", "zero_gradients")
            },
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
