"""The networks of the Siamese page: trained on drawn shapes, then the test pictures in each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dmltk import registry
from dmltk.data.shapes import KINDS
from dmltk.data.split import load
from dmltk.evaluation.evaluate import Progress
from dmltk.evaluation.neighbours import found
from dmltk.folder import RunFolder
from dmltk.training.config import from_dict
from dmltk.training.run import run

PRESETS = {"edge": {"gain": 2**0.5, "lr": 1.0}, "study": {"gain": 1.0, "lr": 0.3}}
CLASSIFIER_RATE = 0.3
PLAIN: dict[str, Any] = {
    "optimizer": "sgd",
    "momentum": 0,
    "schedule": "constant",
    "warmup": 0,
    "weight_decay": 0,
    "batch": 24,
    "per_class": 8,
    "epochs": 40,
    "protocols": ["clean"],
    "metrics": ["recall:ks=[1]"],
    "eval_attacks": [],
    "diagnose": True,
}


@dataclass(frozen=True)
class Space:
    """The test pictures in one space, and what the run's log says.

    Args:
        positions: (N, D).
        labels: (N,) places in KINDS.
        known: kinds that were trained on.
        log: a line an epoch.
    """

    positions: Tensor
    labels: Tensor
    known: tuple[str, ...]
    log: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """By kind, how many pictures have one of their own kind as the nearest of all."""
        return self._counted(found(self.positions, self.labels), torch.ones_like(self.labels) > 0)

    @cached_property
    def counts_known(self) -> dict[str, int]:
        """The same among pictures of trained kinds alone."""
        among = torch.isin(self.labels, torch.tensor([KINDS.index(kind) for kind in self.known]))
        hits = torch.zeros_like(among)
        hits[among] = found(self.positions[among], self.labels[among])
        return self._counted(hits, among)

    def _counted(self, hits: Tensor, among: Tensor) -> dict[str, int]:
        return {
            kind: int((hits & among & (self.labels == place)).sum())
            for place, kind in enumerate(KINDS)
        }

    @property
    def last(self) -> Mapping[str, Any]:
        """What the last epoch's diagnostics say of the term."""
        return self.log[-1]["diagnostics"]["terms.0"]


class Page:
    """Trains what the page trains, each network once a seed, and keeps it in the folder.

    Args:
        folder: where runs go; a finished one is read again.
        seeds: of weights and of batches; the pictures are the same.
        preset: ``edge`` or ``study``: gain of the first weights, and learning rate.
        progress: told what is going on, how far, of how many; what a training warns of stays in
            its own folder, as it is what the page shows.
    """

    def __init__(
        self, folder: RunFolder, seeds: Sequence[int], preset: str, progress: Progress
    ) -> None:
        self.folder, self.seeds, self.progress = folder, tuple(seeds), progress
        self.gain, self.lr = PRESETS[preset]["gain"], PRESETS[preset]["lr"]

    def pixels(self) -> Space:
        """The pictures themselves."""
        test = registry.build("datasets", "shapes").test
        images, labels, _ = load(test, range(len(test)))
        return Space(images[:, 0].flatten(1), labels, KINDS[:3])

    def siamese(
        self, margin: float = 1.0, *, lr: float = 1.0, dim: int = 8, held: str = ""
    ) -> list[Space]:
        """Networks trained on pairs, one a seed.

        Args:
            margin: of the loss.
            lr: times the preset's.
            dim: length of the answer.
            held: a kind that does not train, of the four without the ring; empty is the bar.
        """
        name = f"siamese-m{margin:g}" + (f"-lr{lr:g}" if lr != 1 else "")
        name += f"-dim{dim}" if dim != 8 else ""
        return self._spaces(name, f"siamese:margin={margin:g},dim={dim}", self.lr * lr, held)

    def scaled(self, margin: float) -> list[Space]:
        """The same at lr / margin²."""
        return self._spaces(
            f"scaled-m{margin:g}", f"siamese:margin={margin:g},lr_per_margin=true", self.lr, ""
        )

    def pulled(self) -> list[Space]:
        """Networks of pulls alone: a margin too small for any push."""
        return self._spaces("pulled", "siamese:margin=0.000001", self.lr, "")

    def classifier(self, held: str = "") -> list[Space]:
        """Networks trained to name the kinds; the space is the layer below the scores."""
        return self._spaces("classifier", "classifier", CLASSIFIER_RATE, held)

    def _spaces(self, name: str, pipeline: str, lr: float, held: str) -> list[Space]:
        known = tuple(kind for kind in KINDS[:4] if kind != (held or "bar"))
        name += f"-without-{held}" if held else ""
        spaces = []
        for number, seed in enumerate(self.seeds):
            self.progress(name, number, len(self.seeds))
            given = {
                "dataset": f"shapes:train=[{','.join(known)}]",
                "model": f"tanhconv:gain={self.gain:.6g}",
                "pipeline": registry.build("pipelines", pipeline).to_dict(),
                "lr": lr,
                "seed": seed,
            }
            spaces.append(self._space(f"{name}-seed-{seed}", {**PLAIN, **given}, known))
        self.progress(name, len(self.seeds), len(self.seeds))
        return spaces

    def _space(self, name: str, config: dict[str, Any], known: tuple[str, ...]) -> Space:
        inner = RunFolder(self.folder.file("runs") / name, "resume")
        if not inner.finished:
            run(from_dict(config), inner, lambda *_: None, lambda _: None)
        embed = registry.build("models", f"run:'{inner.path}'").eval()
        test = registry.build("datasets", config["dataset"]).test
        images, labels, _ = load(test, range(len(test)))
        with torch.no_grad():
            positions = embed(images)
        log = [json.loads(line) for line in inner.file("log.jsonl").read_text().splitlines()]
        return Space(positions, labels, known, log)
