"""A run's log: one line an epoch as JSON and CSV, and TensorBoard where it is installed."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
from collections.abc import Mapping
from typing import Any

from dmltk.folder import RunFolder


class Logs:
    """Writes each epoch's figures; lines of steps that are made again are dropped.

    Args:
        folder: the run's.
        step: where the run goes on from; later lines are dropped.
    """

    def __init__(self, folder: RunFolder, step: int) -> None:
        self.folder = folder
        file = folder.file("log.jsonl")
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        self.entries = [
            entry for entry in map(_read, lines) if entry.get("step", sys.maxsize) <= step
        ]
        self._rewrite()
        self.board: Any = None
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            place = str(folder.file("tensorboard"))
            self.board = SummaryWriter(place, purge_step=step + 1 if step else None)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add an epoch's line."""
        self.entries.append(dict(entry))
        self._rewrite()
        if self.board is not None:
            for key, value in _flat(entry).items():
                if isinstance(value, int | float):
                    self.board.add_scalar(key, value, entry["step"])
            self.board.flush()

    def close(self) -> None:
        """Let go of the TensorBoard file."""
        if self.board is not None:
            self.board.close()

    def _rewrite(self) -> None:
        lines = (json.dumps(entry, allow_nan=False) for entry in self.entries)
        self.folder.write("log.jsonl", "".join(f"{line}\n" for line in lines))
        rows = [_flat(entry) for entry in self.entries]
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.folder.write("log.csv", text.getvalue() if names else "")


def _read(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _flat(entry: Mapping[Any, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        inner = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        if isinstance(inner, Mapping):
            flat |= {f"{key}.{name}": item for name, item in _flat(inner).items()}
        else:
            flat[key] = value
    return flat
