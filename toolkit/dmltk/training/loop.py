"""The training loop: epochs of steps, a log line and a checkpoint each."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from timm.utils import ModelEmaV3
from torch import nn

from dmltk.batch import Batch
from dmltk.data.samplers import BalancedBatches
from dmltk.data.split import Split, load
from dmltk.training import checkpoint, seeds
from dmltk.training.config import Config
from dmltk.training.folder import RunFolder
from dmltk.training.optimizer import Schedule, make_optimizer
from dmltk.training.step import Parts, Step

Progress = Callable[[str, int, int], None]


class Trainer:
    """Trains a routed embedder on a split.

    Args:
        config: of the run.
        model: a routed embedder on its device.
        parts: the pipeline's, built.
        split: training pictures.
        batches: rows of the split, batch by batch.
        device: where the model is.
        progress: told what is going on, how far, of how many.
    """

    def __init__(
        self,
        config: Config,
        model: Any,
        parts: Parts,
        split: Split,
        batches: BalancedBatches,
        device: torch.device,
        progress: Progress,
    ) -> None:
        self.config, self.model, self.parts = config, model, parts
        self.split, self.batches = split, batches
        self.device, self.progress = device, progress
        self.total = config.steps or config.epochs * len(batches)
        averaged = any(branch.ema for branch in config.pipeline.branches.values())
        self.ema = ModelEmaV3(model, decay=config.ema) if averaged else None
        slow = self.ema.module if self.ema is not None else None
        self.step = Step(model, config.pipeline, parts, config.seed, slow)
        self.modules: dict[str, nn.Module] = {"model": model, "losses": parts.losses}
        if slow is not None:
            self.modules["ema"] = slow
        self.optimizer = make_optimizer(config, model, parts.losses)
        self.schedule = Schedule(self.optimizer, config.warmup, self.total)

    def __call__(self, folder: RunFolder) -> None:
        """Train from the folder's checkpoint, or from the start, to the end."""
        state = checkpoint.load(folder.path, self.modules, self.optimizer)
        begin, done = (state["epoch"], state["step"]) if state else (0, 0)
        folder.keep_log(done)
        for epoch in range(begin, math.ceil(self.total / len(self.batches))):
            entry = self._epoch(epoch)
            checkpoint.save(
                folder.path,
                self.modules,
                self.optimizer,
                {"epoch": epoch + 1, "step": entry["step"]},
            )
            folder.log(entry)

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """The steps of an epoch; returns its log line."""
        began = time.monotonic()
        first = epoch * len(self.batches)
        last = min(first + len(self.batches), self.total)
        before = [_inactive(loss) for loss in self.parts.losses]
        sums = [0.0] * len(self.parts.losses)
        self.batches.set_epoch(epoch)
        self.model.train()
        self.parts.losses.train()
        for number, rows in zip(range(first, last), self.batches, strict=False):
            self.progress("train", number, self.total)
            values = self._step(epoch, number, rows)
            sums = [s + values.get(f"terms.{i}", 0.0) for i, s in enumerate(sums)]
        self.progress("train", last, self.total)
        empty = [_inactive(loss) - b for loss, b in zip(self.parts.losses, before, strict=True)]
        self._warn_of_empty(empty, last - first)
        means = [value / (last - first) for value in sums]
        return {
            "epoch": epoch + 1,
            "step": last,
            "loss": sum(means),
            "terms": means,
            "no_active_pair": empty,
            "lr": self.optimizer.param_groups[0]["lr"],
            "seconds": round(time.monotonic() - began, 3),
        }

    def _step(self, epoch: int, number: int, rows: list[int]) -> dict[str, float]:
        seeds.seed_everything(self.config.seed, "step", epoch, number)
        images, labels, index = (part.to(self.device) for part in load(self.split, rows))
        views = self.step.pictures(Batch(images, labels, index), epoch, number)
        self.optimizer.zero_grad(set_to_none=True)
        values = self.step.gradients(views, number)
        self.schedule.set(number)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(self.model, number)
        return values

    def _warn_of_empty(self, empty: list[int], steps: int) -> None:
        for term, count in zip(self.config.pipeline.terms, empty, strict=True):
            if count > steps / 2:
                warnings.warn(
                    f"{term.loss} found no active pair in most batches of an epoch and trains"
                    " nothing there: loosen its margin or miner, or take larger batches",
                    stacklevel=2,
                )


def _inactive(loss: nn.Module) -> int:
    return int(getattr(loss, "inactive", 0))
