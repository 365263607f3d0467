"""A whole analysis: a run opened, its spaces read, a few points laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmltk.analysis.attacked import Adversaries, adversaries, trial_of
from dmltk.analysis.maps import MOST, Map, map_of, negatives
from dmltk.analysis.opened import Opened, open_run
from dmltk.analysis.spaces import NEAREST, Space, figures, pixels
from dmltk.evaluation.evaluate import Progress, attacked_rows
from dmltk.evaluation.protocols import Embedded
from dmltk.norms.routed import MAIN
from dmltk.notes import noted

__all__ = ["Drawn", "analyse"]

SCHEMA = 1


@dataclass
class Drawn:
    """What the plots show.

    Args:
        distances: by space, the normalised distances of negative pairs.
        maps: by what their colours mean: `class`, `route`.
    """

    distances: dict[str, NDArray[Any]] = field(default_factory=dict)
    maps: dict[str, Map] = field(default_factory=dict)


def analyse(
    run: str | Path,
    *,
    attack: str = "",
    limit: int = 0,
    device: str = "auto",
    progress: Progress,
    warn: Callable[[str], None],
) -> tuple[dict[str, Any], Drawn]:
    """Read the spaces of a finished run on its test split.

    Args:
        run: the run's folder.
        attack: spec of an attack on route main, or empty.
        limit: queries attacked; 0 for all.
        device: where to compute.
        progress: told what is going on, how far, of how many.
        warn: told each warning once.

    Returns:
        What ``analysis.json`` holds, and what the plots show.

    Raises:
        UserError: it is no finished run, or the attack cannot be built.
    """
    with noted(warn) as notes:
        opened = open_run(run, device)
        trial = trial_of(opened.config, attack) if attack else None
        test, known = opened.dataset.test, opened.known
        clean = {route: opened.embedded(route, progress) for route in opened.models}
        made = adversaries(opened, trial, limit, clean, progress) if trial else None
        spaces = [pixels(test)]
        spaces += [Space(r, opened.routes[r], z.embeddings) for r, z in clean.items()]
        read = []
        for number, space in enumerate(spaces):
            progress("neighbours", number, len(spaces))
            read.append(figures(space, test, known))
        progress("neighbours", len(spaces), len(spaces))
        for note in _doubts(read):
            notes(note)
        drawn, plots = _drawn(opened, spaces, clean, made, notes)
        results = {
            "schema": SCHEMA,
            "kind": "analysis",
            "run": str(run),
            "dataset": opened.config.dataset,
            "split": "test",
            "pictures": len(test),
            "nearest": NEAREST,
            "classes": _classes(opened),
            "spaces": read,
            "attack": made.figures if made else None,
            "plots": plots,
            "warnings": notes.kept,
        }
    return results, drawn


def _classes(opened: Opened) -> dict[str, list[str]]:
    names, trained = opened.dataset.test.names, set(opened.dataset.train.names)
    return {
        "trained": [name for name in names if name in trained],
        "never_trained": [name for name in names if name not in trained],
    }


def _doubts(read: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader of the table should not overlook."""
    found = []
    base, *others = read
    total = sum(entry["pictures"] for entry in base["classes"].values())
    for space in others:
        if space["found"] <= base["found"]:
            found.append(
                f"route {space['space']} finds {space['found']} of {total} pictures, raw"
                f" pixels find {base['found']}: by nearest neighbours it is no better than none"
            )
    return found


def _drawn(
    opened: Opened,
    spaces: Sequence[Space],
    clean: Mapping[str, Embedded],
    made: Adversaries | None,
    note: Callable[[str], None],
) -> tuple[Drawn, dict[str, Any]]:
    """What the plots show, and what ``analysis.json`` says of them."""
    test, seed = opened.dataset.test, opened.config.seed
    rows = torch.tensor(attacked_rows(len(test), MOST, seed))
    labels = test.labels[rows]
    drawn = Drawn()
    for space in spaces:
        found = negatives(space.positions[rows], labels)
        if len(found):
            drawn.distances[space.name] = found
        else:
            note(f"{space.name}: no two pictures of different classes lie apart: no distances")
    medians = {name: float(np.median(values)) for name, values in drawn.distances.items()}
    plots: dict[str, Any] = {
        "distances": {"medians": medians, "pictures": len(rows), "rows": rows.tolist()}
    }
    z = clean[MAIN].embeddings[rows]
    for colour, (positions, groups, names, shown) in {
        "class": (z, labels, test.names, rows),
        **_by_route(clean, made, seed),
    }.items():
        laid = map_of(positions, groups, names, seed, twins=groups is not labels)
        if laid is None:
            note(f"no map by {colour}: there are too few points, or all lie on one spot")
            continue
        drawn.maps[colour] = laid
        plots[f"tsne_{colour}"] = {**laid.figures, "groups": list(names), "rows": shown.tolist()}
    return drawn, plots


Points = tuple[Tensor, Tensor, list[str], Tensor]


def _by_route(
    clean: Mapping[str, Embedded], made: Adversaries | None, seed: int
) -> dict[str, Points]:
    """The same few pictures, clean through main and adversarial (else clean) through each route."""
    if made is not None:
        sets = {"clean through main": clean[MAIN]}
        sets |= {f"adversarial through {r}": there for r, there in made.embedded.items()}
    else:
        sets = {f"clean through {r}": there for r, there in clean.items()}
    if len(sets) < 2:
        return {}
    shared = list(sets.values())[-1].index
    some = shared[attacked_rows(len(shared), MOST // len(sets), seed)]
    parts = [there.embeddings[torch.isin(there.index, some)] for there in sets.values()]
    groups = torch.arange(len(sets)).repeat_interleave(len(some))
    return {"route": (torch.cat(parts), groups, list(sets), some)}
