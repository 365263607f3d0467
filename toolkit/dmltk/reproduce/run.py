"""One published table run again: trained, laid out, written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dmltk.device import pick_device
from dmltk.errors import UserError, unknown
from dmltk.evaluation.evaluate import Progress
from dmltk.folder import RunFolder, environment
from dmltk.notes import noted
from dmltk.reproduce import siamese_page
from dmltk.reproduce.siamese import PRESETS, Page
from dmltk.reproduce.table import MEANINGS, Row

SCHEMA = 1
TABLES = ("siamese-page",)


def reproduce(
    table: str,
    folder: RunFolder,
    *,
    seeds: Sequence[int],
    preset: str,
    progress: Progress,
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Run a table's experiments, each a run in the folder; finished ones are read again.

    Args:
        table: one of TABLES.
        folder: where to.
        seeds: one training of each experiment a seed.
        preset: ``edge`` or ``study`` of the page: gain of the first weights, and rate.
        progress: told what is going on, how far, of how many.
        warn: told each warning once.

    Returns:
        What ``results.json`` holds.

    Raises:
        UserError: no such table or preset, or no seed.
    """
    if table not in TABLES:
        raise unknown("table", table, TABLES)
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if not seeds:
        raise UserError("reproduce needs a seed: write --seeds 0,1,2")
    config = {"table": table, "seeds": list(seeds), "preset": preset}
    with noted(warn) as notes:
        folder.begin()
        folder.write("config.yaml", "".join(f"{key}: {value}\n" for key, value in config.items()))
        surroundings = environment(pick_device("cpu"), seeds[0], {"name": "shapes"}, None)
        folder.write_json("environment.json", surroundings)
        page = Page(folder, seeds, preset, progress)
        found: list[Row] = siamese_page.rows(page)
        results = {
            "schema": SCHEMA,
            "kind": "reproduce",
            "config": config,
            "environment": surroundings,
            "sorts": MEANINGS,
            "rows": [row.to_dict() for row in found],
            "warnings": notes.kept,
        }
    folder.write_json("results.json", results)
    return results
