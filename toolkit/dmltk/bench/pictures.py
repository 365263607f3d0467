"""Adversarial pictures as files."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from dmltk import stored
from dmltk.atomic import replacing
from dmltk.bench.plan import Task
from dmltk.bench.state import Outcome
from dmltk.data.split import Split, load
from dmltk.errors import UserError

__all__ = ["Album", "worst_pictures"]

SHOWN = 8
"""Most queries on the sheet of the worst."""
NORMS = ("linf", "l2", "none")
"""In the order in which the sheet takes them."""


@dataclass(frozen=True)
class Album:
    """A folder of every adversarial picture, one data set an attack.

    `ATTACK/CLASS/ROW.png` holds eight bit, rounded inside the bound, and is what `folder:` reads;
    `ATTACK.floats/FIRST.safetensors` the pictures as they were found; `ATTACK.csv` says of each
    picture what was done to it.

    Args:
        root: the folder.
        split: where the clean pictures come from.
    """

    root: Path
    split: Split

    def open(self) -> None:
        """Make the folder.

        Raises:
            UserError: where it cannot be made.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.root} cannot be made ({error}): name another --save-adversarial"
            ) from error

    def add(self, task: Task, index: Tensor, images: Tensor) -> None:
        """Write a batch.

        Args:
            task: whose pictures.
            index: (N,) their rows.
            images: (N, C, H, W) in [0, 1].
        """
        clean, _, _ = load(self.split, index.tolist())
        rounded = replace(task.attack.threat, quantize=8).quantized(images, clean.to(images))
        for row, picture in zip(index.tolist(), rounded, strict=True):
            path = self._path(task, row)
            path.parent.mkdir(parents=True, exist_ok=True)
            to_pil_image((picture * 255).round().to(torch.uint8)).save(path)
        floats = self.root / f"{task.key}.floats" / f"{int(index[0])}.safetensors"
        floats.parent.mkdir(exist_ok=True)
        stored.write(floats, {"images": images, "index": index}, {})

    def close(self, task: Task, outcome: Outcome) -> None:
        """Write what was done to each picture of a task."""
        with (
            replacing(self.root / f"{task.key}.csv") as aside,
            aside.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["path", "label", "row", "attack", "eps", "linf", "l2"])
            figures = zip(
                *(t.tolist() for t in (outcome.index, outcome.linf, outcome.l2)), strict=True
            )
            for row, linf, l2 in figures:
                path = self._path(task, row).relative_to(self.root)
                label = self.split.names[int(self.split.labels[row])]
                writer.writerow([path.as_posix(), label, row, task.spec, task.eps, linf, l2])

    def _path(self, task: Task, row: int) -> Path:
        label = int(self.split.labels[row])
        name = re.sub(r"[^\w-]+", "_", self.split.names[label])
        return self.root / task.key / f"{label:05d}-{name}" / f"{row}.png"


def worst_pictures(split: Split, done: Sequence[tuple[Task, Outcome]], path: Path) -> list[int]:
    """A sheet of the queries lost under the smallest bounds: clean, attacked, change tenfold.

    The attacked picture is in eight bit and was judged again: it is lost still.

    Args:
        split: the clean pictures.
        done: what each attack found.
        path: the PNG.

    Returns:
        The rows shown, from the top; where there are none, no file is written.
    """
    shown: dict[int, Tensor] = {}
    for _, outcome in sorted(done, key=lambda pair: (NORMS.index(pair[0].norm), pair[0].eps)):
        for row, picture in zip(outcome.example_rows.tolist(), outcome.examples, strict=True):
            if len(shown) < SHOWN:
                shown.setdefault(row, picture)
    if not shown:
        return []
    clean = load(split, list(shown))[0]
    attacked = torch.stack(list(shown.values())).float() / 255
    change = ((attacked - clean) * 10 + 0.5).clamp(0, 1)
    lines = torch.stack([clean, attacked, change], 1).flatten(0, 1)
    sheet = make_grid(lines, nrow=3, pad_value=1.0)
    with replacing(path) as aside:
        to_pil_image((sheet * 255).round().to(torch.uint8)).save(aside, format="PNG")
    return list(shown)
