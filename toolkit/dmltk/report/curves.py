"""Robustness curves: what is still found as the bound grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dmltk.report.tables import budget

__all__ = ["Curve", "curves", "draw"]

Curve = Sequence[tuple[float, float]]
"""Bounds in pixel units, 0 first, and recall@1 there."""
INK = ("#1b4b8f", "#c2410c", "#157a4f", "#7a3b9c", "#8a6d00", "#4b5563")
MARKS = "os^Dvx"
SINGLE = "single attacks"


def curves(results: Mapping[str, Any], route: str | None = None) -> dict[str, Curve]:
    """The worst case over each suite of a bench, and over all attacks, under L-infinity.

    Args:
        results: what ``results.json`` holds.
        route: of a bench of several; None for the worst over them.

    Returns:
        By name; none where the bench has no bound above 0.
    """
    clean = {
        entry["route"]: entry["metrics"]["recall@1"]
        for entry in results["evaluations"]
        if entry["attack"] is None and entry["protocol"] == "query"
    }
    start = clean.get(route or "", min(clean.values()))
    found: dict[str, list[tuple[float, float]]] = {}
    for entry in results["worst_case"]:
        if entry["norm"] == "linf":
            suite = entry["suite"]
            name = "all attacks" if suite is None else suite or SINGLE
            point = entry["eps"], entry["metrics"]["recall@1"]
            found.setdefault(name, [(0.0, start)]).append(point)
    if len(found) == 2:
        found.pop("all attacks", None)
    return {name: sorted(curve) for name, curve in found.items()}


def draw(lines: Mapping[str, Curve], path: Path) -> None:
    """Write curves as a picture, recall@1 over the bound on a logarithmic axis.

    Args:
        lines: by name.
        path: of the PNG.
    """
    figure = Figure(figsize=(6.4, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bounds = sorted({eps for line in lines.values() for eps, _ in line})
    for number, (name, line) in enumerate(lines.items()):
        ink, mark = INK[number % len(INK)], MARKS[number % len(MARKS)]
        axes.plot(*zip(*line, strict=True), color=ink, marker=mark, ms=5, label=name, clip_on=False)
    axes.set_xscale("symlog", linthresh=bounds[1], linscale=0.6)
    axes.set_xticks(bounds, [budget(eps) for eps in bounds], rotation=40, fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1)
    axes.set_xlabel("ε: largest change of a pixel")
    axes.set_ylabel("recall@1, worst case of each query")
    axes.grid(True, color="#d4d4d8", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)
