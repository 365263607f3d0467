"""What a training will see, told before it: pairs, visits, cost, contradictory labels."""

from __future__ import annotations

from typing import Any

from dmltk import registry
from dmltk.data import coverage
from dmltk.data.duplicates import contradictions
from dmltk.data.split import Split
from dmltk.training.batches import batches
from dmltk.training.config import Config

EXACT = 20_000_000
"""Up to so many pairs, the sampler is replayed and the visits counted."""


def plan(config: Config) -> dict[str, Any]:
    """The figures of a run that are known before any training.

    Args:
        config: its data set, sampler, batch, epochs and seed are looked at.

    Returns:
        Plain data. `pairs` are the different ones there are; `pairs_a_batch` and `distances` what
        a loss of all pairs (of adjacent rows with ``sampler=pairs``) computes; `expected` and
        `visited` the different pairs among these, and their share of all, `visited` being exact
        for the seed, and None beyond 20 million pairs.

    Raises:
        UserError: where a run would be refused for its data or its sampler.
    """
    context = {"size": config.size} if config.size else {}
    split: Split = registry.build("datasets", config.dataset, context=context).train
    made = batches(config, split)
    pairs, length = coverage.pairs(made), len(made)
    steps = config.epochs * length
    listed = None if split.pairs is None else len(split.pairs)
    passed = steps * config.batch if listed is None else 2 * listed * config.epochs
    each = {name: _whole(count) for name, count in coverage.a_batch(made).items()}
    distances = steps * each["all"] if listed is None else listed * config.epochs
    expected = coverage.expected(made, config.epochs)
    small = len(split) * (len(split) - 1) // 2 <= EXACT
    visited = coverage.replay(made, config.epochs).count if small else None
    single = (split.labels.bincount() == 1).nonzero().flatten().tolist()
    groups = contradictions(split)
    return {
        "dataset": config.dataset,
        "sampler": config.sampler,
        "batch": config.batch,
        **({"per_class": config.per_class} if config.sampler == "classes" else {}),
        **({"with_replacement": True} if config.with_replacement else {}),
        "epochs": config.epochs,
        "seed": config.seed,
        "pictures": len(split),
        "classes": len(split.names),
        "single_picture_classes": [split.names[label] for label in single],
        "pairs": pairs,
        "listed_pairs": listed,
        "pairs_a_batch": each,
        "batches_an_epoch": length,
        "distances": distances,
        "expected": _share(expected, pairs["all"]),
        "visited": None if visited is None else _share(visited, pairs["all"]),
        "steps": steps,
        "pictures_passed": passed,
        "contradictory_labels": [
            {"rows": rows, "classes": sorted({split.names[split.labels[row]] for row in rows})}
            for rows in groups
        ],
    }


def _share(count: float, every: int) -> dict[str, float | None]:
    return {"pairs": count, "share": count / every if every else None}


def _whole(count: float) -> int | float:
    return int(count) if float(count).is_integer() else count
