"""Adversaries of the deployed route, seen through every route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from dmltk import registry, seeds
from dmltk.analysis.opened import Opened
from dmltk.evaluation.distances import identity_confusion
from dmltk.evaluation.evaluate import Judge, Progress, Trial, attacked_rows, figures, of_split
from dmltk.evaluation.metrics import recall
from dmltk.evaluation.protocols import Embedded, against
from dmltk.norms.routed import MAIN
from dmltk.pipelines.compose import unique_names
from dmltk.training.config import Config

__all__ = ["Adversaries", "adversaries", "trial_of"]


@dataclass(frozen=True)
class Adversaries:
    """Pictures made against route main.

    Args:
        embedded: by route, where they lie.
        figures: what ``analysis.json`` holds of them.
    """

    embedded: Mapping[str, Embedded]
    figures: dict[str, Any]


@dataclass
class _Watched:
    """An attack whose pictures also go through other models.

    Args:
        attack: any.
        models: by route.
    """

    attack: Any
    models: Mapping[str, Any]
    seen: dict[str, list[Tensor]] = field(default_factory=dict)

    def __call__(self, embed: Any, batch: Any, *, generator: torch.Generator) -> Any:
        result = self.attack(embed, batch, generator=generator)
        with torch.no_grad():
            for route, model in self.models.items():
                self.seen.setdefault(route, []).append(model(result.images).float().cpu())
        return result


def trial_of(config: Config, spec: str) -> Trial:
    """An attack on a run's test pictures; one that names no bound takes the training's largest.

    Args:
        config: of the run.
        spec: the attack; its targets come from the gallery.

    Raises:
        UserError: it cannot be built.
    """
    context = {"eps": _largest(config), "targets_from": "reference"}
    return Trial(unique_names([spec])[0], spec, registry.build("attacks", spec, context=context))


def adversaries(
    opened: Opened, trial: Trial, limit: int, clean: Mapping[str, Embedded], progress: Progress
) -> Adversaries:
    """Attack test queries of a run and judge what became of them.

    Args:
        opened: the run.
        trial: the attack; its targets come from the gallery as main sees it.
        limit: queries attacked; 0 for all.
        clean: by route, the whole test split.
        progress: told what is going on, how far, of how many.
    """
    config, test = opened.config, opened.dataset.test
    queries = test.queries
    rows = [queries[i] for i in attacked_rows(len(queries), limit, config.seed)]
    watched = _Watched(trial.attack, {r: m for r, m in opened.models.items() if r != MAIN})
    judge = Judge(
        test,
        {},
        [],
        config.batch,
        rows,
        lambda name, first: seeds.generator(config.seed, "judge", name, first),
        progress,
    )
    made, stats = judge.attack(opened.models[MAIN], replace(trial, attack=watched), clean[MAIN])
    found = {r: of_split(test, made.index, torch.cat(parts)) for r, parts in watched.seen.items()}
    embedded = {MAIN: made, **found}
    seen = of_split(test, made.index, clean[MAIN].embeddings[made.index])
    entries = [_entry("clean", MAIN, MAIN, seen, clean)]
    for route, there in embedded.items():
        entries.append(_entry("adversarial", route, route, there, clean))
        if route != MAIN:
            entries.append(_entry("adversarial", route, MAIN, there, clean))
    threat = trial.attack.threat
    return Adversaries(
        embedded,
        {
            "spec": trial.spec,
            "name": trial.name,
            "eps": float(threat.largest),
            "norm": threat.norm,
            "pictures": len(rows),
            "attack_stats": stats,
            "entries": entries,
        },
    )


def _entry(
    what: str, route: str, gallery: str, queries: Embedded, clean: Mapping[str, Embedded]
) -> dict[str, Any]:
    sides = against(queries, clean[gallery].gallery)
    measured = figures([recall(ks=(1,)), identity_confusion()], sides)
    return {"pictures": what, "route": route, "gallery": gallery, "metrics": measured}


def _largest(config: Config) -> float:
    """The largest bound of the training's attacks; the run's where it had none."""
    specs = [branch.attack for branch in config.pipeline.branches.values() if branch.attack]
    made = [registry.build("attacks", spec, context={"eps": config.eps}) for spec in specs]
    bounds = [attack.threat.largest for attack in made if attack.threat.norm == "linf"]
    return float(max(bounds, default=config.eps))
