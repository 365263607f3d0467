"""Builds and checks everything a bench names, before anything is attacked or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dmltk import registry, seeds
from dmltk.attacks.probe import differentiable
from dmltk.bench.config import Config
from dmltk.bench.plan import Plan, plan
from dmltk.data.split import Dataset, named_size
from dmltk.device import pick_device
from dmltk.errors import UserError, unknown
from dmltk.evaluation.evaluate import attacked_rows

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """All parts of a bench, built; nothing has been attacked or written."""

    config: Config
    device: torch.device
    dataset: Dataset
    models: Mapping[str, Any]
    surrogate: Any
    plan: Plan
    rows: list[int]
    metrics: list[Any]


def prepare(config: Config, routed: Any = None) -> Prepared:
    """Build everything a bench names, and refuse what cannot be.

    Args:
        config: what is asked for.
        routed: the model with its routes, where the config asks for another than main.

    Raises:
        UserError: before any work, naming what, where and what to do.
    """
    device = pick_device(config.device)
    size = config.size or named_size(config.dataset)
    seeds.seed_everything(config.seed, "model")
    model = _laid_out(_model(config.model, size) if routed is None else routed, config, device)
    models = _by_route(config, model)
    surrogate = None
    if config.surrogate:
        surrogate = _laid_out(_model(config.surrogate, size), config, device)
    size = size or getattr(model, "size", None) or 0
    dataset = registry.build("datasets", config.dataset, context={"size": size} if size else {})
    metrics = [registry.build("metrics", spec) for spec in config.metrics]
    queries = dataset.test.queries
    planned = plan(config, len(queries), differentiable(model))
    rows = [queries[i] for i in attacked_rows(len(queries), config.limit, config.seed)]
    return Prepared(config, device, dataset, models, surrogate, planned, rows, metrics)


def _model(spec: str, size: int) -> Any:
    return registry.build("models", spec, context={"size": size} if size else {})


def _laid_out(model: Any, config: Config, device: torch.device) -> Any:
    if config.channels_last == "on":
        model = model.to(memory_format=torch.channels_last)
    return model.to(device).eval()


def _by_route(config: Config, model: Any) -> dict[str, Any]:
    """The models that are attacked: one, or each route of a routed one."""
    routes = getattr(model, "routes", None)
    if routes is None and config.route == "main":
        return {"main": model}
    if routes is None:
        raise UserError(f"--route {config.route} needs a model with routes: give --model run:DIR")
    if config.route == "worst":
        return {name: model.merge(name).eval() for name in routes}
    if config.route not in routes:
        raise unknown("route", config.route, [*routes, "worst"], config.model)
    return {config.route: model.merge(config.route).eval()}
