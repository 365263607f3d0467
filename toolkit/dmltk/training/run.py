"""A whole run: everything is built and checked first, then trained, then judged."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from dmltk import registry, seeds
from dmltk.data.split import Dataset, Split, load, named_size
from dmltk.device import pick_device
from dmltk.errors import UserError
from dmltk.evaluation.evaluate import Judge, Progress, Trial, attacked_rows, no_draws
from dmltk.folder import RunFolder, environment
from dmltk.models import card as model_card
from dmltk.models import weights
from dmltk.notes import noted
from dmltk.pipelines.compose import unique_names
from dmltk.spec import parse
from dmltk.training import checkpoint
from dmltk.training.batches import batches as make_batches
from dmltk.training.batches import check_losses
from dmltk.training.clusters import clusters
from dmltk.training.config import Config
from dmltk.training.layout import choose, seconds
from dmltk.training.loop import BEST, Score, Trainer
from dmltk.training.parts import build_parts

SCHEMA = 1


@dataclass(frozen=True)
class Prepared:
    """All parts of a run, built; nothing has been trained or written.

    `config` is what was asked for, with what the run chose itself filled in.
    """

    config: Config
    device: torch.device
    dataset: Dataset
    model: Any
    trainer: Trainer
    trials: list[Trial]
    protocols: dict[str, Any]
    metrics: list[Any]


def prepare(config: Config, say: Callable[[str], None] = lambda _: None) -> Prepared:
    """Build everything a run names, and refuse what cannot be.

    Args:
        config: what is asked for.
        say: told what the run chooses itself.

    Raises:
        UserError: before any work, naming what, where and what to do.
    """
    device = pick_device(config.device)
    size = config.size or named_size(config.dataset)
    seeds.seed_everything(config.seed, "model")
    embedder = _build_model(config, size)
    pipeline = config.pipeline
    context = {"seed": seeds.derive(config.seed, "norms"), "device": device}
    strategy = registry.build("norms", pipeline.norms, context=context)
    model = strategy.apply(embedder.to(device), pipeline.routes)
    size = size or embedder.size or 0
    dataset = registry.build("datasets", config.dataset, context={"size": size} if size else {})
    protocols = {parse(spec).name: registry.build("protocols", spec) for spec in config.protocols}
    _check(config, dataset, protocols)
    batches = make_batches(config, dataset.train)
    metrics = [registry.build("metrics", spec) for spec in config.metrics]
    sizes = {name: head.out_features for name, head in embedder.heads.items()}
    context = {"eps": config.eps, "num_classes": len(dataset.train.names), "device": device}
    context["seed"] = seeds.derive(config.seed, "losses")
    parts = build_parts(pipeline, {**context, "sizes": sizes})
    check_losses(config, dataset.train, parts)
    parts.losses.to(device)
    parts.objectives.to(device)
    bounds = [a.threat.largest for a in parts.attacks.values() if a.threat.norm == "linf"]
    trials = _trials(config.eval_attacks, max(bounds, default=config.eps))
    config = _settled(config, model, dataset, batches, say)
    if config.channels_last == "on":
        model = model.to(memory_format=torch.channels_last)
    augment = registry.build("augments", config.augment) if config.augment else None
    score = _score(config, dataset.val, model)
    labels = clusters(
        pipeline,
        dataset.train,
        model,
        features=config.features,
        batch=config.batch,
        seed=config.seed,
    )
    trainer = Trainer(config, model, parts, dataset.train, batches, device, score, augment, labels)
    trainer.rehearse()
    return Prepared(config, device, dataset, model, trainer, trials, protocols, metrics)


def run(
    config: Config,
    folder: RunFolder,
    progress: Progress,
    warn: Callable[[str], None],
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train, judge and write everything a run leaves.

    Args:
        config: what to do.
        folder: where to; a checkpoint in it is gone on from.
        progress: told what is going on, how far, of how many.
        warn: told each warning once.
        say: told what the run chooses itself.

    Returns:
        What ``results.json`` holds.
    """
    with noted(warn) as notes:
        ready = prepare(config, say)
        config = ready.config
        _warn_of_seen_classes(ready.dataset)
        surroundings = environment(
            ready.device, config.seed, ready.dataset.card, weights.file_of(config.model)
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
            "warnings": notes.kept,
        }
    folder.write_json("results.json", results)
    return results


def _settled(
    config: Config,
    model: Any,
    dataset: Dataset,
    batches: Iterable[list[int]],
    say: Callable[[str], None],
) -> Config:
    """The same, with ``channels_last=auto`` replaced by what is faster here."""
    if config.channels_last != "auto":
        return config
    amp = torch.bfloat16 if config.amp == "bf16" else None
    images = load(dataset.train, next(iter(batches)))[0].to(next(model.parameters()).device)
    choice = choose(model, images, functools.partial(seconds, amp=amp))
    say(str(choice))
    return msgspec.structs.replace(config, channels_last=choice.channels_last)


def _warn_of_seen_classes(dataset: Dataset) -> None:
    shared = dataset.card.get("shared_classes")
    seen = shared.get("test", 0) if isinstance(shared, Mapping) else 0
    if seen:
        warnings.warn(
            f"{seen} of {len(dataset.test.names)} test classes were seen in training: recall is"
            " not of new classes",
            stacklevel=2,
        )


def _score(config: Config, val: Split | None, model: Any) -> Score | None:
    """Recall@1 on the validation classes, where there are some."""
    if val is None:
        return None
    recall = registry.build("metrics", "recall:ks=[1]")
    judge = Judge(val, {}, [recall], config.batch, (), no_draws, lambda *_: None)
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
    offered = _model_context(config, config.size or named_size(config.dataset))
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
    """The judge of a run's test split; a gallery set apart is attacked where a protocol asks."""
    config, test = ready.config, ready.dataset.test
    queries = test.queries
    rows = [queries[i] for i in attacked_rows(len(queries), config.limit, config.seed)]
    if any(protocol.attacked == "all" for protocol in ready.protocols.values()):
        rows = list(range(len(test)))
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


def _check(config: Config, dataset: Dataset, protocols: Mapping[str, Any]) -> None:
    """Refuse what the data set does not allow."""
    if config.patience and dataset.val is None:
        spec = f"{config.dataset}{',' if ':' in config.dataset else ':'}val=.2"
        where = f"--dataset {spec}" if dataset.train.pairs is None else "val=.2 within its test=…"
        raise UserError(f"patience={config.patience} needs validation classes: write {where}")
    whole = [name for name, protocol in protocols.items() if protocol.attacked == "all"]
    if whole and 0 < config.limit < len(dataset.test.queries):
        raise UserError(
            f"protocol '{whole[0]}' attacks all {len(dataset.test)} test pictures and cannot go"
            f" with --limit {config.limit}: use --protocol query"
        )
