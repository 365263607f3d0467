"""The training loop: epochs of steps, a log line and a checkpoint each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Trainer:
    """Trains a routed embedder on a split.

    Args:
        config: of the run.
        model: a routed embedder on its device.
        parts: the pipeline's, built.
        split: training pictures.
        device: where the model is.
        progress: told what is going on, how far, of how many.
    """

    config: Config
    model: Any
    parts: Parts
    split: Split
    device: torch.device
    progress: Progress

    def __call__(self, folder: RunFolder) -> None:
        """Train from the folder's checkpoint, or from the start, to the end."""
        config = self.config
        averaged = any(branch.ema for branch in config.pipeline.branches.values())
        ema = ModelEmaV3(self.model, decay=config.ema) if averaged else None
        modules: dict[str, nn.Module] = {"model": self.model, "losses": self.parts.losses}
        if ema is not None:
            modules["ema"] = ema.module
        optimizer = make_optimizer(config, self.model, self.parts.losses)
        state = checkpoint.load(folder.path, modules, optimizer) or {"epoch": 0, "step": 0}
        folder.keep_log(state["step"])
        batches = BalancedBatches(
            self.split.labels,
            batch=config.batch,
            per_class=config.per_class,
            seed=seeds.derive(config.seed, "batches"),
        )
        total = config.steps or config.epochs * len(batches)
        schedule = Schedule(optimizer, config.warmup, total)
        step = Step(self.model, config.pipeline, self.parts, config.seed, ema and ema.module)
        for epoch in range(state["epoch"], math.ceil(total / len(batches))):
            batches.set_epoch(epoch)
            first = epoch * len(batches)
            self._epoch(step, ema, optimizer, schedule, batches, (epoch, first, total), folder)
            done = min(first + len(batches), total)
            checkpoint.save(folder.path, modules, optimizer, {"epoch": epoch + 1, "step": done})

    def _epoch(
        self,
        step: Step,
        ema: Any,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        batches: BalancedBatches,
        place: tuple[int, int, int],
        folder: RunFolder,
    ) -> None:
        epoch, first, total = place
        began, sums, number = time.monotonic(), dict[str, float](), first
        self.model.train()
        self.parts.losses.train()
        for number, rows in enumerate(batches, first):
            if number >= total:
                break
            self.progress("train", number, total)
            seeds.seed_everything(self.config.seed, "step", epoch, number)
            images, labels, index = (t.to(self.device) for t in load(self.split, rows))
            views = step.pictures(Batch(images, labels, index), epoch, number)
            optimizer.zero_grad(set_to_none=True)
            values = step.gradients(views, number)
            schedule.set(number)
            optimizer.step()
            if ema is not None:
                ema.update(self.model, number)
            sums = {key: sums.get(key, 0.0) + value for key, value in values.items()}
        done = min(first + len(batches), total)
        self.progress("train", done, total)
        means = {key: value / (done - first) for key, value in sums.items()}
        inactive = {
            f"terms.{i}": count
            for i, loss in enumerate(self.parts.losses)
            if (count := int(getattr(loss, "inactive", 0)))
        }
        folder.log(
            {
                "epoch": epoch + 1,
                "step": done,
                "loss": sum(means.values()),
                "terms": means,
                "no_active_pair": inactive,
                "lr": optimizer.param_groups[0]["lr"],
                "seconds": round(time.monotonic() - began, 3),
            }
        )
