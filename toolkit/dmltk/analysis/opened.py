"""A finished run taken up again: its data set, its model through every set of normalisers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dmltk import registry
from dmltk.data.split import Dataset, named_size
from dmltk.device import pick_device
from dmltk.errors import UserError
from dmltk.evaluation.evaluate import Judge, Progress, no_draws
from dmltk.evaluation.protocols import Embedded
from dmltk.norms.routed import MAIN
from dmltk.training.config import Config, load
from dmltk.training.reopen import reopen

__all__ = ["Opened", "open_run"]


@dataclass(frozen=True)
class Opened:
    """A run to be looked at.

    Args:
        config: of its training.
        dataset: as it was trained on.
        models: an embedder by route, in eval mode; of routes that share a set the first
            stands for all, main before any other.
        routes: by the same names, all routes of that set.
        device: where it computes.
    """

    config: Config
    dataset: Dataset
    models: Mapping[str, Any]
    routes: Mapping[str, tuple[str, ...]]
    device: torch.device

    def embedded(self, route: str, progress: Progress) -> Embedded:
        """The whole test split through a route."""

        def told(_: str, done: int, total: int) -> None:
            progress(f"embed {route}", done, total)

        judge = Judge(self.dataset.test, {}, [], self.config.batch, (), no_draws, told)
        return judge.embed(self.models[route])

    @property
    def known(self) -> Tensor:
        """(N,) bool, which test pictures are of classes that were trained."""
        trained = set(self.dataset.train.names)
        each = torch.tensor([name in trained for name in self.dataset.test.names])
        return each[self.dataset.test.labels]


def open_run(path: str | Path, device: str = "auto") -> Opened:
    """Open a finished run.

    Args:
        path: its folder.
        device: where to compute.

    Raises:
        UserError: it is not a finished run, or its test split holds nothing to compare.
    """
    folder = Path(path).expanduser()
    inner = sorted(folder.glob("seed-*/model.safetensors"))
    if inner and not (folder / "model.safetensors").exists():
        raise UserError(f"{folder} holds a run a seed: name one of them, such as {inner[0].parent}")
    place = pick_device(device)
    routed = reopen(folder).to(place)
    config = load(folder / "config.yaml")
    size = config.size or named_size(config.dataset) or routed.size or 0
    dataset = registry.build("datasets", config.dataset, context={"size": size} if size else {})
    if len(dataset.test) < 2:
        raise UserError(f"the test split of {config.dataset} holds one picture: nothing to compare")
    sets: dict[str, list[str]] = {}
    for route, name in sorted(routed.routes.items(), key=lambda pair: pair[0] != MAIN):
        sets.setdefault(name, []).append(route)
    models = {routes[0]: routed.merge(routes[0]).eval() for routes in sets.values()}
    if config.channels_last == "on":
        models = {r: model.to(memory_format=torch.channels_last) for r, model in models.items()}
    named = {routes[0]: tuple(routes) for routes in sets.values()}
    return Opened(config, dataset, models, named, place)
