"""A whole run: everything is built and checked first, then trained, then judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dmltk import registry
from dmltk.data.samplers import BalancedBatches
from dmltk.data.split import Dataset
from dmltk.errors import UserError
from dmltk.evaluation.evaluate import Judge, Progress, Trial
from dmltk.models import weights
from dmltk.spec import parse
from dmltk.training import seeds
from dmltk.training.config import Config
from dmltk.training.folder import RunFolder, environment
from dmltk.training.loop import Trainer
from dmltk.training.step import Parts, build_parts

SCHEMA = 1


@dataclass(frozen=True)
class Prepared:
    """All parts of a run, built; nothing has been trained or written."""

    config: Config
    device: torch.device
    dataset: Dataset
    model: Any
    parts: Parts
    batches: BalancedBatches
    trials: list[Trial]
    protocols: dict[str, Any]
    metrics: list[Any]


def pick_device(name: str) -> torch.device:
    """The device that a name means; ``auto`` is an accelerator where there is one.

    Raises:
        UserError: for a device that is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"there is no device '{name}' here: use --device cpu or auto") from None
    return device


def prepare(config: Config) -> Prepared:
    """Build everything a run names, and refuse what cannot be.

    Raises:
        UserError: before any work, naming what, where and what to do.
    """
    device = pick_device(config.device)
    seeds.seed_everything(config.seed, "model")
    embedder = _build_model(config)
    size = config.size or embedder.size
    dataset = registry.build("datasets", config.dataset, context={"size": size} if size else {})
    pipeline = config.pipeline
    context = {"seed": seeds.derive(config.seed, "norms"), "device": device}
    strategy = registry.build("norms", pipeline.norms, context=context)
    model = strategy.apply(embedder.to(device), pipeline.routes)
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)
    sizes = {name: head.out_features for name, head in embedder.heads.items()}
    context = {"eps": config.eps, "num_classes": len(dataset.train.names), "device": device}
    parts = build_parts(pipeline, {**context, "sizes": sizes})
    parts.losses.to(device)
    eps = max((float(a.threat.eps) for a in parts.attacks.values()), default=config.eps)
    protocols = {parse(spec).name: registry.build("protocols", spec) for spec in config.protocols}
    _check_limit(config, protocols, len(dataset.test))
    return Prepared(
        config,
        device,
        dataset,
        model,
        parts,
        BalancedBatches(
            dataset.train.labels,
            batch=config.batch,
            per_class=config.per_class,
            seed=seeds.derive(config.seed, "batches"),
        ),
        _trials(config.eval_attacks, eps),
        protocols,
        [registry.build("metrics", spec) for spec in config.metrics],
    )


def run(
    config: Config, folder: RunFolder, progress: Progress, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Train, judge and write everything a run leaves.

    Args:
        config: what to do.
        folder: where to; a checkpoint in it is gone on from.
        progress: told what is going on, how far, of how many.
        warn: told each warning once.

    Returns:
        What ``results.json`` holds.
    """
    noted: list[str] = []

    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        noted.append(str(message))
        warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = note
        ready = prepare(config)
        named = parse(config.model).kwargs.get("weights")
        file = weights.locate(named) if isinstance(named, str) and named else None
        surroundings = environment(ready.device, config.seed, ready.dataset.card, file)
        folder.begin()
        folder.write("config.yaml", config.to_yaml())
        folder.write_json("environment.json", surroundings)
        _trainer(ready, progress)(folder)
        embedder = ready.model.merge("main")
        card = {"dmltk": "1", "model": config.model, "dataset": config.dataset, "route": "main"}
        weights.save(embedder, folder.file("model.safetensors"), card)
        results = {
            "schema": SCHEMA,
            "kind": "run",
            "config": config.to_dict(),
            "environment": surroundings,
            "routes": dict(ready.model.routes),
            "evaluations": judge(ready, progress)(embedder, ready.trials),
            "worst_case": [],
            "warnings": noted,
        }
    folder.write_json("results.json", results)
    return results


def _trainer(ready: Prepared, progress: Progress) -> Trainer:
    return Trainer(
        ready.config,
        ready.model,
        ready.parts,
        ready.dataset.train,
        ready.batches,
        ready.device,
        progress,
    )


def judge(ready: Prepared, progress: Progress) -> Judge:
    """The judge of a run's test split."""
    config, test = ready.config, ready.dataset.test
    rows: Sequence[int] = range(len(test))
    if 0 < config.limit < len(test):
        order = torch.randperm(len(test), generator=seeds.generator(config.seed, "limit"))
        rows = sorted(order[: config.limit].tolist())
    return Judge(
        test,
        ready.protocols,
        ready.metrics,
        config.batch,
        rows,
        lambda name, first: seeds.generator(config.seed, "judge", name, first),
        progress,
    )


def _build_model(config: Config) -> Any:
    factory = registry.factory("models", parse(config.model).name)
    context: dict[str, Any] = {"dim": getattr(factory, "train_dim", 128)}
    if config.size:
        context["size"] = config.size
    embedder = registry.build("models", config.model, context=context)
    for name, head in config.pipeline.heads.items():
        put = embedder.set_head if name == "embed" else embedder.add_head
        put(name, pool=head.pool, dim=head.dim, hidden=head.hidden, unit=head.unit, bn=head.bn)
    return embedder


def _trials(specs: Sequence[str], eps: float) -> list[Trial]:
    trials: list[Trial] = []
    for spec in specs:
        base = parse(spec).name
        alike = sum(trial.name.rstrip("0123456789") == base for trial in trials)
        attack = registry.build("attacks", spec, context={"eps": eps, "targets_from": "reference"})
        trials.append(Trial(f"{base}{alike + 1}" if alike else base, spec, attack))
    return trials


def _check_limit(config: Config, protocols: dict[str, Any], pictures: int) -> None:
    if not 0 < config.limit < pictures:
        return
    whole = [name for name, protocol in protocols.items() if protocol.attacked == "all"]
    if whole:
        raise UserError(
            f"protocol '{whole[0]}' attacks all {pictures} test pictures and cannot go with"
            f" --limit {config.limit}: use --protocol query"
        )
