"""A whole bench: everything is built and checked first, then attacked, then judged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dmltk.bench.config import Config
from dmltk.bench.engine import Progress
from dmltk.bench.outcomes import queries_csv
from dmltk.bench.pictures import worst_pictures
from dmltk.bench.prepare import Prepared, prepare
from dmltk.bench.route import Found, attack_route
from dmltk.bench.score import scores
from dmltk.bench.worst import worst_case
from dmltk.errors import UserError
from dmltk.folder import RunFolder, environment
from dmltk.models import weights
from dmltk.notes import noted

SCHEMA = 1


def run(
    config: Config,
    folder: RunFolder,
    progress: Progress,
    warn: Callable[[str], None],
    routed: Any = None,
) -> dict[str, Any]:
    """Attack, judge and write everything a bench leaves.

    Args:
        config: what to do.
        folder: where to; what is kept in it is gone on from.
        progress: told what is going on, how far, of how many.
        warn: told each warning once.
        routed: the model with its routes, where the config asks for another than main.

    Returns:
        What ``results.json`` holds.
    """
    with noted(warn) as notes:
        ready = prepare(config, routed)
        for reason in ready.plan.left_out:
            notes(reason)
        surroundings = environment(
            ready.device, config.seed, ready.dataset.card, weights.file_of(config.model)
        )
        _unchanged(folder, surroundings)
        folder.begin()
        folder.write("config.yaml", config.to_yaml())
        folder.write_json("environment.json", surroundings)
        found = _attacked(ready, folder, progress, notes)
        results = {
            "schema": SCHEMA,
            "kind": "bench",
            "config": config.to_dict(),
            "environment": surroundings,
            **found,
            "warnings": notes.kept,
        }
    folder.write_json("results.json", results)
    shutil.rmtree(folder.file("state"), ignore_errors=True)
    return results


def _attacked(
    ready: Prepared, folder: RunFolder, progress: Progress, note: Callable[[str], None]
) -> dict[str, Any]:
    """The parts of ``results.json`` that the attacks give."""
    found = {
        route: attack_route(ready, route, model, folder, progress, note)
        for route, model in ready.models.items()
    }
    queries, test = torch.as_tensor(ready.rows), ready.dataset.test
    worst = []
    for route, one in found.items():
        entries = worst_case(one.engine.struck, queries, one.engine.found, one.engine.counted)
        worst += [{**entry, "route": route} for entry in entries]
    if len(found) > 1:
        struck = [s for one in found.values() for s in one.engine.struck]
        whole = torch.stack([one.engine.found for one in found.values()]).all(0)
        counted = next(iter(found.values())).engine.counted
        entries = worst_case(struck, queries, whole, counted)
        worst += [{**entry, "route": "worst"} for entry in entries]
    lines = {route: (one.engine.victim, one.done) for route, one in found.items()}
    folder.write("queries.csv", queries_csv(test, lines, ready.rows))
    done = [pair for one in found.values() for pair in one.done]
    return {
        "evaluations": [entry for one in found.values() for entry in one.evaluations],
        "worst_case": worst,
        "scores": _scores(ready, found),
        "worst_pictures": worst_pictures(test, done, folder.file("worst.png")),
        "checks": [
            {**check.plain(), "route": route}
            for route, one in found.items()
            for check in one.checks
        ],
    }


def _unchanged(folder: RunFolder, now: Mapping[str, Any]) -> None:
    """Refuse to go on with what was found on another model or other pictures."""
    stored = folder.file("environment.json")
    if folder.mode != "resume" or not stored.exists():
        return
    before = json.loads(stored.read_text("utf-8"))
    for what, key in (("model's file", "weights"), ("pictures", "data")):
        if before.get(key) != json.loads(json.dumps(now[key])):
            raise UserError(
                f"the {what} changed since {folder.path} was begun: replace it with --overwrite,"
                " or name another folder with --out"
            )


def _scores(ready: Prepared, found: Mapping[str, Found]) -> list[dict[str, Any]]:
    asked = [spec for spec, suite in ready.plan.suites.items() if suite.score == "ers"]
    return [
        {**entry, "route": route}
        for route, one in found.items()
        for entry in scores(one.evaluations, asked)
    ]
