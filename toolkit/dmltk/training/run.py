"""A whole run: everything is built and checked first, then trained, then judged."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dmltk import registry, seeds
from dmltk.convert import number
from dmltk.data.samplers import BalancedBatches
from dmltk.data.split import Dataset, Split
from dmltk.errors import UserError
from dmltk.evaluation.evaluate import Judge, Progress, Trial
from dmltk.models import card as model_card
from dmltk.models import weights
from dmltk.pipelines.compose import unique_names
from dmltk.spec import parse
from dmltk.training import checkpoint
from dmltk.training.config import Config
from dmltk.training.folder import RunFolder, environment
from dmltk.training.loop import BEST, Score, Trainer
from dmltk.training.parts import build_parts

SCHEMA = 1


@dataclass(frozen=True)
class Prepared:
    """All parts of a run, built; nothing has been trained or written."""

    config: Config
    device: torch.device
    dataset: Dataset
    model: Any
    trainer: Trainer
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
    size = config.size or _size_of(config.dataset)
    seeds.seed_everything(config.seed, "model")
    embedder = _build_model(config, size)
    pipeline = config.pipeline
    context = {"seed": seeds.derive(config.seed, "norms"), "device": device}
    strategy = registry.build("norms", pipeline.norms, context=context)
    model = strategy.apply(embedder.to(device), pipeline.routes)
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)
    size = size or embedder.size or 0
    dataset = registry.build("datasets", config.dataset, context={"size": size} if size else {})
    sizes = {name: head.out_features for name, head in embedder.heads.items()}
    context = {"eps": config.eps, "num_classes": len(dataset.train.names), "device": device}
    context["seed"] = seeds.derive(config.seed, "losses")
    parts = build_parts(pipeline, {**context, "sizes": sizes})
    parts.losses.to(device)
    parts.objectives.to(device)
    batches = BalancedBatches(
        dataset.train.labels,
        batch=config.batch,
        per_class=config.per_class,
        seed=seeds.derive(config.seed, "batches"),
        with_replacement=config.with_replacement,
    )
    augment = registry.build("augments", config.augment) if config.augment else None
    score = _score(config, dataset.val, model)
    trainer = Trainer(config, model, parts, dataset.train, batches, device, score, augment)
    bounds = [a.threat.largest for a in parts.attacks.values() if a.threat.norm == "linf"]
    eps = max(bounds, default=config.eps)
    if config.patience and dataset.val is None:
        raise UserError(
            f"patience={config.patience} needs validation classes: write --dataset"
            f" {config.dataset}{',' if ':' in config.dataset else ':'}val=.2"
        )
    protocols = {parse(spec).name: registry.build("protocols", spec) for spec in config.protocols}
    _check_limit(config, protocols, len(dataset.test))
    metrics = [registry.build("metrics", spec) for spec in config.metrics]
    trials = _trials(config.eval_attacks, eps)
    trainer.rehearse()
    return Prepared(config, device, dataset, model, trainer, trials, protocols, metrics)


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
        surroundings = environment(
            ready.device, config.seed, ready.dataset.card, _weights_file(config)
        )
        folder.begin()
        folder.write("config.yaml", config.to_yaml())
        folder.write_json("environment.json", surroundings)
        ready.trainer(folder, progress)
        results = {
            "schema": SCHEMA,
            "kind": "run",
            "config": config.to_dict(),
            "environment": surroundings,
            "routes": dict(ready.model.routes),
            "metrics": _settings(config.metrics, ready.metrics),
            "evaluations": _evaluations(ready, folder, progress),
            "worst_case": [],
            "warnings": noted,
        }
    folder.write_json("results.json", results)
    return results


def _score(config: Config, val: Split | None, model: Any) -> Score | None:
    """Recall@1 on the validation classes, where there are some."""
    if val is None:
        return None
    recall = registry.build("metrics", "recall:ks=[1]")
    judge = Judge(val, {}, [recall], config.batch, (), _no_draws, lambda *_: None)
    return lambda: judge.figures(model.at("main"))["recall@1"]


def _evaluations(ready: Prepared, folder: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Judge the last weights, and the best on the validation classes where there are some.

    The better kept are saved as ``model.safetensors``: route main alone.
    """
    config = ready.config
    judging = judge(ready, progress)
    found = judging(ready.model.merge("main"), ready.trials)
    kept = "last"
    if folder.file(BEST).exists():
        checkpoint.load_module(folder.file(BEST), ready.model)
        best = judging(ready.model.merge("main"), ready.trials)
        found = [{**e, "weights": "best"} for e in best] + [{**e, "weights": kept} for e in found]
        kept = "best"
    embedder = ready.model.merge("main")
    offered = _model_context(config, config.size or _size_of(config.dataset))
    card = {
        **model_card(embedder, config.model, offered),
        "dmltk": "1",
        "dataset": config.dataset,
        "route": "main",
        "weights": kept,
    }
    weights.save(embedder, folder.file("model.safetensors"), card)
    for entry in found:
        if entry["metrics"].get("collapsed"):
            warnings.warn(
                f"the embeddings under {entry['name']} have collapsed (mean cosine"
                f" {entry['metrics']['mean_cosine']:.3f}): no figure of them speaks of robustness",
                stacklevel=2,
            )
    return found


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


def _settings(specs: Sequence[str], metrics: Sequence[Any]) -> dict[str, Any]:
    """Each metric's own settings (engine, seed, repeats…), which belong beside its figures."""
    return {
        spec: dataclasses.asdict(metric)
        for spec, metric in zip(specs, metrics, strict=True)
        if dataclasses.is_dataclass(metric) and not isinstance(metric, type)
    }


def _no_draws(name: str, first: int) -> torch.Generator:
    return torch.Generator()


def _weights_file(config: Config) -> Path | None:
    named = parse(config.model).kwargs.get("weights")
    return weights.locate(named) if isinstance(named, str) and named else None


def _size_of(dataset: str) -> int:
    """The picture size that a data set's spec names; 0 where it names none."""
    named = parse(dataset).kwargs.get("size")
    found = number(named) if isinstance(named, str) else None
    return int(found or 0)


def _model_context(config: Config, size: int) -> dict[str, Any]:
    """What a run offers to its model."""
    factory = registry.factory("models", parse(config.model).name)
    offered: dict[str, Any] = {"dim": getattr(factory, "train_dim", 128)}
    return {**offered, "size": size} if size else offered


def _build_model(config: Config, size: int) -> Any:
    embedder = registry.build("models", config.model, context=_model_context(config, size))
    for name, head in config.pipeline.heads.items():
        put = embedder.set_head if name == "embed" else embedder.add_head
        put(name, pool=head.pool, dim=head.dim, hidden=head.hidden, unit=head.unit, bn=head.bn)
    return embedder


def _trials(specs: Sequence[str], eps: float) -> list[Trial]:
    context = {"eps": eps, "targets_from": "reference"}
    return [
        Trial(name, spec, registry.build("attacks", spec, context=context))
        for name, spec in zip(unique_names(specs), specs, strict=True)
    ]


def _check_limit(config: Config, protocols: dict[str, Any], pictures: int) -> None:
    if not 0 < config.limit < pictures:
        return
    whole = [name for name, protocol in protocols.items() if protocol.attacked == "all"]
    if whole:
        raise UserError(
            f"protocol '{whole[0]}' attacks all {pictures} test pictures and cannot go with"
            f" --limit {config.limit}: use --protocol query"
        )
