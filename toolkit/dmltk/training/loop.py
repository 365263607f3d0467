"""The training loop: epochs of steps, a log line and a checkpoint each."""

from __future__ import annotations

import copy
import functools
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from timm.utils import ModelEmaV3
from torch import nn

from dmltk import seeds
from dmltk.batch import Batch
from dmltk.data import loading
from dmltk.data.split import Split, load
from dmltk.errors import DmltkError, UserError
from dmltk.folder import RunFolder
from dmltk.pipelines.structure import Term
from dmltk.training import checkpoint
from dmltk.training.config import Config
from dmltk.training.diagnostics import Diagnostics
from dmltk.training.logs import Logs
from dmltk.training.optimizer import Schedule, make_optimizer
from dmltk.training.parts import Parts
from dmltk.training.step import Step
from dmltk.training.stop import Stopped, Stopper

Progress = Callable[[str, int, int], None]
Score = Callable[[], float | None]
Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
Loaded = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
BEST = "best.safetensors"


@dataclass
class Place:
    """Where a training is: all of it that is neither weights nor optimizer.

    Args:
        epoch: epochs done.
        step: optimizer steps done.
        sums: of each term's values in the epoch under way.
        empty: each term's batches without an active pair in the epoch under way.
        seen: what diagnostics summed up in the epoch under way.
        best: the best validation score so far.
        waited: epochs since then.
    """

    epoch: int = 0
    step: int = 0
    sums: list[float] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    seen: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    waited: int = 0


class Trainer:
    """Trains a routed embedder on a split.

    Args:
        config: of the run.
        model: a routed embedder on its device.
        parts: the pipeline's, built.
        split: training pictures.
        batches: rows of the split, batch by batch, with ``set_epoch``.
        device: where the model is.
        score: a figure of the validation split, larger is better; None without one.
        augment: what every batch goes through first.
        labels: further labels of each training picture, by name.
    """

    def __init__(
        self,
        config: Config,
        model: Any,
        parts: Parts,
        split: Split,
        batches: Any,
        device: torch.device,
        score: Score | None = None,
        augment: Augment | None = None,
        labels: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.config, self.model, self.parts = config, model, parts
        self.split, self.batches, self.score, self.augment = split, batches, score, augment
        self.labels = {name: table.to(device) for name, table in (labels or {}).items()}
        self.loader = loading.batches(split, batches, workers=config.workers, seed=config.seed)
        self.device = device
        self.total = config.steps or config.epochs * len(batches)
        averaged = any(branch.ema for branch in config.pipeline.branches.values())
        self.ema = ModelEmaV3(model, decay=config.ema) if averaged else None
        slow = self.ema.module if self.ema is not None else None
        amp = torch.bfloat16 if config.amp == "bf16" else None
        self.step = Step(model, config.pipeline, parts, config.seed, slow, amp)
        self.modules: dict[str, nn.Module] = {"model": model, "losses": parts.losses}
        if slow is not None:
            self.modules["ema"] = slow
        self.diagnostics = (
            Diagnostics(config, list(parts.losses), model) if config.diagnose else None
        )
        self.optimizer = make_optimizer(config, model, parts.losses)
        self.schedule = Schedule(self.optimizer, config.warmup, self.total, config.schedule)
        self.trained = [p for g in self.optimizer.param_groups for p in g["params"]]

    def __call__(self, folder: RunFolder, progress: Progress) -> None:
        """Train from the folder's checkpoint, or from the start, to the end.

        Args:
            folder: the run's.
            progress: told what is going on, how far, of how many.

        Raises:
            DmltkError: a value is not finite, or nothing can be written; the last good state
                is named.
            Stopped: on SIGTERM, once the state is saved.
        """
        state = checkpoint.load(folder.path, self.modules, self.optimizer)
        place = Place(**state) if state else Place()
        logs = Logs(folder, place.step)
        try:
            with Stopper() as stop:
                while place.step < self.total and not self._patience_is_over(place):
                    logs.add(self._epoch(place, folder, stop, progress))
                    self._save(folder, place)
                    if stop.asked and place.step < self.total:
                        raise self._stopped(place, folder)
        finally:
            logs.close()

    def _epoch(
        self, place: Place, folder: RunFolder, stop: Stopper, progress: Progress
    ) -> dict[str, Any]:
        """The rest of an epoch; returns its log line."""
        began = time.monotonic()
        first = place.epoch * len(self.batches)
        last = min(first + len(self.batches), self.total)
        terms = len(self.parts.losses)
        place.sums, place.empty = place.sums or [0.0] * terms, place.empty or [0] * terms
        self.batches.set_epoch(place.epoch)
        self.model.train()
        self.parts.losses.train()
        for number, loaded in zip(range(first, last), self.loader, strict=False):
            if number < place.step:
                continue
            progress("train", number, self.total)
            self._step(place, number, loaded, folder)
            if stop.asked and number + 1 < last:
                self._save(folder, place)
                raise self._stopped(place, folder)
        progress("train", last, self.total)
        return self._finished(place, last - first, began, folder)

    def batch(self, loaded: Loaded, epoch: int, number: int) -> Batch:
        """Loaded rows on the device, augmented, with the further labels of the run."""
        images, labels, index = (part.to(self.device) for part in loaded)
        if self.augment is not None:
            draws = seeds.generator(self.config.seed, "augment", epoch, number)
            images = self.augment(images, draws)
        extra = {name: table[index] for name, table in self.labels.items()}
        return Batch(images, labels, index, extra=extra)

    def _step(self, place: Place, number: int, loaded: Loaded, folder: RunFolder) -> None:
        seeds.seed_everything(self.config.seed, "step", place.epoch, number)
        batch = self.batch(loaded, place.epoch, number)
        before = [_inactive(loss) for loss in self.parts.losses]
        try:
            self.optimizer.zero_grad(set_to_none=True)
            views = self.step.pictures(batch, place.epoch, number)
            if self.diagnostics is not None:
                self.step.watch = functools.partial(self.diagnostics.see, place.seen)
            values = self.step.gradients(views, number)
            norm = nn.utils.clip_grad_norm_(self.trained, self.config.clip or math.inf)
            if not torch.isfinite(norm):
                raise DmltkError(f"the gradient is not finite at step {number}")
        except DmltkError as error:
            raise type(error)(f"{error}; {_last_good(folder)}") from error
        self.schedule.set(number)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(self.model, number)
        place.step = number + 1
        place.sums = [s + values.get(f"terms.{i}", 0.0) for i, s in enumerate(place.sums)]
        now = [_inactive(loss) for loss in self.parts.losses]
        for i, term in enumerate(self.config.pipeline.terms):
            place.empty[i] += int(now[i] - before[i] >= _values(term))

    def rehearse(self) -> None:
        """The first step on copies, so that what cannot work is told before anything is written.

        Raises:
            UserError: where the parts do not go together.
        """
        if not self.total:
            return
        model, parts = copy.deepcopy(self.model), copy.deepcopy(self.parts)
        step = Step(model.train(), self.config.pipeline, parts, self.config.seed, model)
        loaded = load(self.split, next(iter(self.batches)))
        try:
            step.gradients(step.pictures(self.batch(loaded, 0, 0), 0, 0), 0)
        except (DmltkError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"the model {self.config.model} and its losses cannot take a batch of"
                f" {tuple(loaded[0].shape)} pictures: {said}"
            ) from error

    def _finished(
        self, place: Place, steps: int, began: float, folder: RunFolder
    ) -> dict[str, Any]:
        means = [value / steps for value in place.sums]
        self._warn_of_empty(place.empty, steps)
        entry: dict[str, Any] = {
            "epoch": place.epoch + 1,
            "step": place.step,
            "loss": sum(means),
            "terms": means,
            "no_active_pair": place.empty,
            "lr": self.optimizer.param_groups[0]["lr"],
        }
        alphas = [getattr(loss, "alpha_now", None) for loss in self.parts.losses]
        if any(alpha is not None for alpha in alphas):
            entry["alpha"] = alphas
        if self.diagnostics is not None:
            entry["diagnostics"] = self._diagnosed(self.diagnostics, place, means)
        if self.score is not None:
            entry["validation"] = self.score()
            self._keep_best(place, entry["validation"], folder)
        place.epoch, place.sums, place.empty, place.seen = place.epoch + 1, [], [], {}
        return {**entry, "seconds": round(time.monotonic() - began, 3)}

    def _diagnosed(self, found: Diagnostics, place: Place, means: list[float]) -> dict[str, Any]:
        weights = [term.weight_at(place.step - 1) for term in self.config.pipeline.terms]
        plain = [value / (weight or 1.0) for value, weight in zip(means, weights, strict=True)]
        images = load(self.split, range(min(len(self.split), self.config.batch)))[0]
        return found.finished(place.seen, plain, images.to(self.device))

    def _keep_best(self, place: Place, score: float | None, folder: RunFolder) -> None:
        place.waited += 1
        if score is not None and (place.best is None or score > place.best):
            place.best, place.waited = score, 0
            checkpoint.save_module(folder.file(BEST), self.model)

    def _patience_is_over(self, place: Place) -> bool:
        return bool(self.config.patience) and place.waited >= self.config.patience

    def _stopped(self, place: Place, folder: RunFolder) -> Stopped:
        return Stopped(
            f"stopped after step {place.step} of {self.total} and saved in {folder.path}:"
            " the same command with --resume goes on"
        )

    def _save(self, folder: RunFolder, place: Place) -> None:
        checkpoint.save(folder.path, self.modules, self.optimizer, asdict(place))

    def _warn_of_empty(self, empty: list[int], steps: int) -> None:
        for term, count in zip(self.config.pipeline.terms, empty, strict=True):
            if count > steps / 2:
                warnings.warn(
                    f"{term.loss} found no active pair in most batches of an epoch and trains"
                    " nothing there: loosen its margin or miner, or take larger batches",
                    stacklevel=2,
                )


def _values(term: Term) -> int:
    """How many values a term takes in a step."""
    return len(term.of) if term.join == "each" else 1


def _inactive(loss: nn.Module) -> int:
    return int(getattr(loss, "inactive", 0))


def _last_good(folder: RunFolder) -> str:
    file = folder.file(checkpoint.NAME)
    if not file.exists():
        return "no epoch was finished before it"
    return f"the last good state is in {file}"
