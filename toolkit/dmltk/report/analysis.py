"""What ``dmltk analyse`` prints and leaves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from dmltk.atomic import replacing
from dmltk.errors import UserError
from dmltk.report.tables import budget, console

if TYPE_CHECKING:
    from dmltk.analysis.run import Drawn

__all__ = ["FILES", "free", "print_analysis", "write"]

FILES = ("analysis.json", "distances.png", "tsne.png")
COLUMNS = 12
"""Most classes that have a column of their own."""
WORST = 5

Figures = Mapping[str, Any]


def free(out: Path, overwrite: bool) -> None:
    """Refuse a folder that holds an analysis.

    Args:
        out: the folder; it need not be there.
        overwrite: whether what an analysis left may be replaced.

    Raises:
        UserError: it is a file, or holds what would be replaced.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: name a folder with --out")
    held = [name for name in FILES if (out / name).exists()]
    if held and not overwrite:
        raise UserError(
            f"{out / held[0]} exists: replace it with --overwrite, or name another folder"
            " with --out"
        )


def write(results: Figures, drawn: Drawn, out: Path) -> list[Path]:
    """Write ``analysis.json`` and the plots; those of an earlier analysis go.

    Args:
        results: what the file holds.
        drawn: what the plots show.
        out: the folder; it is made.

    Returns:
        What was written.

    Raises:
        UserError: the folder cannot be made.
    """
    from dmltk.report.spaces import draw_distances, draw_maps

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be made ({error}): name another --out") from error
    if drawn.distances:
        with replacing(out / "distances.png") as aside:
            draw_distances(drawn.distances, aside)
    if drawn.maps:
        with replacing(out / "tsne.png") as aside:
            draw_maps(drawn.maps, aside)
    with replacing(out / "analysis.json") as aside:
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
        aside.write_text(text + "\n", "utf-8")
    return [out / name for name in FILES if (out / name).exists()]


def print_analysis(results: Figures) -> None:
    """The table of spaces, how to read it, and what became of the adversaries."""
    spaces = results["spaces"]
    few = len(spaces[0]["classes"]) <= COLUMNS
    names = list(spaces[0]["classes"]) if few else ["median class", f"worst {WORST} classes"]
    both = spaces[0]["found_known"] is not None
    head = ["space", *(["among"] if both else []), *names, "all", "ten nearest", "tightness"]
    table = Table(*map(escape, head), box=None, pad_edge=False)
    for column in table.columns[1 if few else 3 :]:
        column.justify = "right"
    for space in spaces:
        for key, among in (("found", "all"), *((("found_known", "trained"),) if both else ())):
            cells = _counts(space, key, few)
            rest = [_share(space["share"]), _share(space["tightness"])]
            first = key == "found"
            title = ", ".join(space["routes"]) or space["space"]
            table.add_row(
                *map(escape, [title if first else "", *([among] if both else []), *cells]),
                *(rest if first else ["", ""]),
            )
    out = console()
    trained, never = (len(results["classes"][sort]) for sort in ("trained", "never_trained"))
    out.print(
        f"{results['pictures']} test pictures of {escape(results['dataset'])}:"
        f" {trained + never} classes, {trained} of them trained"
    )
    out.print(table)
    for line in _legend(results, both, few):
        out.print(escape(line))
    if results["attack"]:
        _print_attack(results["attack"])


def _counts(space: Figures, key: str, few: bool) -> list[str]:
    """The cells of the classes, and that of all."""
    classes = {n: c for n, c in space["classes"].items() if few or c[key] is not None}
    total = sum(c["pictures"] for c in classes.values() if c[key] is not None)
    whole = f"{space[key]}/{total}"
    if few:
        cells = [_count(c[key], c["pictures"]) for c in classes.values()]
        return [*cells, whole]
    ranked = sorted(classes.items(), key=lambda item: item[1][key] / item[1]["pictures"])
    median = statistics.median(c[key] / c["pictures"] for c in classes.values())
    worst = [f"{name} {_count(c[key], c['pictures'])}" for name, c in ranked[:WORST]]
    return [f"{median:.3f}", ", ".join(worst), whole]


def _legend(results: Figures, both: bool, few: bool) -> list[str]:
    lines = [
        "found/pictures: the nearest other picture is of the own class; ties count against it.",
    ]
    if not few:
        lines.append("median class: the share found of it.")
    if both:
        lines.append("among trained: without the pictures of never-trained classes as distractors.")
    return [
        *lines,
        f"ten nearest: the share of the {results['nearest']} nearest that are of the own class.",
        "tightness: mean distance inside a class over that to all others. Scale-confounded: a"
        " margin enlarges everything; read beside nearest neighbours, never choose a model by it.",
    ]


def _print_attack(attack: Figures) -> None:
    out = console()
    out.print()
    bound = budget(attack["eps"], attack["norm"])
    table = Table(
        "pictures",
        "through",
        "gallery through",
        "recall@1",
        "identity confusion",
        box=None,
        pad_edge=False,
    )
    for column in table.columns[3:]:
        column.justify = "right"
    for entry in attack["entries"]:
        figures = entry["metrics"]
        cells = (entry["pictures"], entry["route"], entry["gallery"])
        numbers = _share(figures["recall@1"]), _share(figures["identity_confusion"])
        table.add_row(*map(escape, cells), *numbers)
    out.print(
        f"{attack['pictures']} queries attacked through main by {escape(attack['spec'])} at {bound}"
    )
    out.print(table)
    out.print(
        "identity confusion: the share of the queries that are at least as near to another picture"
        " as to the clean picture they were made of."
    )


def _count(found: int | None, pictures: int) -> str:
    return "–" if found is None else f"{found}/{pictures}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
