"""Plots of embedding spaces: distances of negative pairs, and maps, each beside its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dmltk.analysis.maps import Map
from dmltk.report.curves import INK, MARKS

__all__ = ["draw_distances", "draw_maps"]

BINS = 60
LEGEND = 12
"""Most classes that a legend names; more are told by colour alone."""
GOLDEN = 0.618034


def draw_distances(spaces: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write the histograms of the distances of negative pairs, a curve a space.

    Args:
        spaces: by name, distances over their mean.
        path: of the PNG.
    """
    figure = Figure(figsize=(6.4, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    longest = max(float(np.quantile(values, 0.999)) for values in spaces.values())
    edges = np.linspace(0, longest, BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    for number, (name, values) in enumerate(spaces.items()):
        heights = np.histogram(values, edges)[0] / len(values) / (edges[1] - edges[0])
        ink, median = INK[number % len(INK)], float(np.median(values))
        dashes = "--" if number == 0 else "-"
        label = f"{name}: median {median:.3f}"
        axes.plot(middles, heights, color=ink, linestyle=dashes, linewidth=1.6, label=label)
        axes.plot(median, 0, color=ink, marker="^", ms=6, clip_on=False, zorder=3)
    axes.set_title(
        "distances of negative pairs; pixels dashed; the triangles are medians", fontsize=9
    )
    axes.set_xlim(0, longest)
    axes.set_ylim(0, None)
    axes.set_xlabel("distance of two pictures of different classes, over the mean of all such")
    axes.set_ylabel("density")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#d4d4d8", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, format="png")


def draw_maps(maps: Mapping[str, Map], path: Path) -> None:
    """Write t-SNE maps side by side.

    Args:
        maps: by what the colours mean.
        path: of the PNG.
    """
    figure = Figure(figsize=(6.0 * len(maps), 6.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (colour, laid) in enumerate(maps.items(), 1):
        axes = figure.add_subplot(1, len(maps), place)
        _scatter(axes, laid)
        axes.set_title(_title(colour, laid), fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
        axes.spines[:].set_visible(False)
    figure.savefig(path, format="png")


def _scatter(axes: Axes, laid: Map) -> None:
    shown = np.unique(laid.groups)
    size = 14 if len(laid.points) > 300 else 26
    for number, group in enumerate(shown):
        ours = laid.points[laid.groups == group]
        ink: Any = INK[number % len(INK)]
        if len(shown) > len(INK):
            # steps of the golden section keep neighbouring numbers apart on the wheel of colours
            ink = colormaps["turbo"](number * GOLDEN % 1)
        mark = MARKS[number % len(MARKS)]
        # twins lie on each other: the later ones are smaller, so that all are seen
        area = size * (len(shown) - number) if laid.twins else size
        axes.scatter(
            ours[:, 0], ours[:, 1], s=area, color=ink, marker=mark, linewidths=0, alpha=0.75
        )
        axes.scatter([], [], s=26, color=ink, marker=mark, label=laid.names[group])
    if len(shown) <= LEGEND:
        axes.legend(
            frameon=False,
            fontsize=8,
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            ncols=6 if max(map(len, laid.names)) < 12 else 2,
            handletextpad=0.2,
        )


def _title(colour: str, laid: Map) -> str:
    """What the colours mean, and the numbers; both are of the space, not of the map."""
    figures = laid.figures
    seen = len(np.unique(laid.groups))
    groups = {"class": "classes", "route": "sets"}.get(colour, colour)
    silhouette = figures["silhouette"]
    said = "undefined" if silhouette is None else f"{silhouette:.3f}"
    return (
        f"by {colour}: {figures['points']} points, {seen} {groups}\n"
        f"10-NN accuracy {figures['knn_accuracy']:.3f} (chance {figures['chance']:.3f}), "
        f"silhouette {said}"
    )
