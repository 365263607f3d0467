"""What a bench has found so far: one file a batch, one an attack; whole or not there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from dmltk import stored

__all__ = ["COUNTERS", "Outcome", "State"]

COUNTERS = ("forwards", "backwards", "zero_gradients")


@dataclass(frozen=True)
class Outcome:
    """What an attack did to some queries.

    Args:
        index: (N,) their rows in the test split.
        embeddings: (N, D) of the adversarial pictures.
        linf: (N,) largest change of any pixel.
        l2: (N,) Euclidean length of the change.
        figures: what the goal reports of each picture, (N,) by name.
        examples: (M, C, H, W) uint8, a few of the pictures that were found before and are lost.
        example_rows: (M,) their rows.
        counters: picture-passes: forwards, backwards, zero_gradients.
        notes: warnings that the attack gave.
    """

    index: Tensor
    embeddings: Tensor
    linf: Tensor
    l2: Tensor
    figures: Mapping[str, Tensor] = field(default_factory=dict)
    examples: Tensor = field(default_factory=lambda: torch.zeros(0, 3, 1, 1, dtype=torch.uint8))
    example_rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    counters: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    notes: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Outcome]) -> Outcome:
        """The outcome of several batches; at least one."""

        def cat(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat([t for t in tensors if len(t)] or [tensors[0]])

        return cls(
            index=torch.cat([part.index for part in parts]),
            embeddings=torch.cat([part.embeddings for part in parts]),
            linf=torch.cat([part.linf for part in parts]),
            l2=torch.cat([part.l2 for part in parts]),
            figures={
                name: torch.cat([part.figures[name] for part in parts]) for name in parts[0].figures
            },
            examples=cat([part.examples for part in parts]),
            example_rows=cat([part.example_rows for part in parts]),
            counters={name: sum(part.counters[name] for part in parts) for name in COUNTERS},
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        )


class State:
    """The files of a bench under way.

    Args:
        folder: made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for torn in folder.glob(".*"):
            torn.unlink()

    def load(self, key: str) -> Outcome | None:
        """The outcome kept under a key; None where there is none, or none that can be read."""
        try:
            found, metadata = stored.read(self._path(key))
            state = json.loads(metadata["state"])
        except (OSError, SafetensorError):
            return None
        figures = {
            name.removeprefix("figures."): found.pop(name)
            for name in list(found)
            if name.startswith("figures.")
        }
        notes, counters = tuple(state["notes"]), state["counters"]
        return Outcome(**found, figures=figures, counters=counters, notes=notes)

    def save(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome: written aside and renamed.

        Raises:
            DmltkError: where it cannot be written.
        """
        names = ("index", "embeddings", "linf", "l2", "examples", "example_rows")
        tensors = {name: getattr(outcome, name) for name in names}
        tensors |= {f"figures.{name}": value for name, value in outcome.figures.items()}
        state = {"counters": dict(outcome.counters), "notes": list(outcome.notes)}
        stored.write(self._path(key), tensors, {"state": json.dumps(state)})

    def close(self, key: str, parts: Sequence[str], outcome: Outcome) -> None:
        """Keep the outcome of all parts together and drop the parts."""
        self.save(key, outcome)
        for part in parts:
            self._path(part).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"
