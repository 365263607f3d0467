"""One configuration under several seeds: a run each, then means and deviations."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dmltk.evaluation.evaluate import Progress
from dmltk.folder import RunFolder, environment
from dmltk.training.config import Config
from dmltk.training.run import SCHEMA, prepare, run


def repeat(
    config: Config,
    folder: RunFolder,
    progress: Progress,
    warn: Callable[[str], None],
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run each seed in a folder of its own; finished ones are not run again.

    Args:
        config: with `seeds`.
        folder: of all; ``seed-N`` in it is a whole run.
        progress: told what is going on, how far, of how many.
        warn: told each warning once a run.
        say: told what the runs choose themselves, the same for all.

    Returns:
        What the folder's ``results.json`` holds: each figure's mean, and in ``deviation`` its
        sample standard deviation.
    """
    first = msgspec.structs.replace(config, seed=config.seeds[0], seeds=())
    ready = prepare(first, say)
    config = msgspec.structs.replace(config, channels_last=ready.config.channels_last)
    singles = [msgspec.structs.replace(config, seed=seed, seeds=()) for seed in config.seeds]
    folder.begin()
    folder.write("config.yaml", config.to_yaml())
    surroundings = environment(ready.device, config.seed, ready.dataset.card, None)
    folder.write_json("environment.json", surroundings)
    found = []
    for single in singles:
        inner = RunFolder(folder.file(f"seed-{single.seed}"), "resume")

        def told(doing: str, done: int, total: int, seed: int = single.seed) -> None:
            progress(f"seed {seed}: {doing}", done, total)

        if inner.finished:
            found.append(json.loads(inner.file("results.json").read_text("utf-8")))
        else:
            found.append(run(single, inner, told, warn))
    results = {
        "schema": SCHEMA,
        "kind": "seeds",
        "config": config.to_dict(),
        "environment": surroundings,
        "routes": found[0]["routes"],
        "evaluations": [
            _together(same) for same in zip(*(one["evaluations"] for one in found), strict=True)
        ],
        "warnings": list(dict.fromkeys(text for one in found for text in one["warnings"])),
    }
    folder.write_json("results.json", results)
    return results


def _together(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = evaluations[0]["metrics"]
    columns = {name: [e["metrics"][name] for e in evaluations] for name in names}
    shared = ("name", "split", "protocol", "attack", "eps", "route", "weights")
    entry = {key: evaluations[0][key] for key in shared if key in evaluations[0]}
    entry["metrics"] = {name: _mean(values) for name, values in columns.items()}
    entry["deviation"] = {name: _deviation(values) for name, values in columns.items()}
    successes = [e["attack_stats"]["success"] for e in evaluations if "attack_stats" in e]
    if successes:
        entry["attack_stats"] = {"success": _mean(successes)}
    return entry


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def _deviation(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.stdev(known) if len(known) == len(values) > 1 else None
