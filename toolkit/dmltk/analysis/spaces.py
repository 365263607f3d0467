"""Spaces of the same pictures, pixels first, and the figures of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from dmltk.data.split import Split
from dmltk.evaluation.neighbours import read

__all__ = ["NEAREST", "SIDE", "Space", "figures", "pixels"]

NEAREST = 10
SIDE = 64
"""Pictures with a longer side are brought to it before their pixels are compared."""
BATCH = 256


@dataclass(frozen=True)
class Space:
    """Where the pictures of a split lie.

    Args:
        name: `pixels`, or a route.
        routes: that lead there; none for pixels.
        positions: (N, D).
    """

    name: str
    routes: Sequence[str]
    positions: Tensor


def pixels(split: Split) -> Space:
    """The pictures themselves, in 8 bit where they are; of equal channels the first."""
    parts = []
    for rows in torch.arange(len(split)).split(BATCH):
        images = split.pictures.read(rows.tolist())
        if max(images.shape[2:]) > SIDE:
            images = functional.resize(images, [SIDE, SIDE], antialias=True)
        parts.append(images)
    images = torch.cat(parts)
    grey = bool((images == images[:, :1]).all())
    return Space("pixels", (), images[:, :1].flatten(1) if grey else images.flatten(1))


def figures(space: Space, split: Split, known: Tensor) -> dict[str, Any]:
    """What ``analysis.json`` holds of a space.

    Args:
        space: of the split's pictures.
        split: their labels and classes.
        known: (N,) bool, which of them are of trained classes.

    Returns:
        Of each class and of all: how many pictures were `found` (the nearest other is of their own
        class), `found_known` (among pictures of trained classes alone; None where not both sorts
        are there, or the class was not trained), `share` of the nearest ten, `tightness`. Of all,
        the share is the mean over pictures that have a mate, tightness that over classes.
    """
    reading = read(space.positions, split.labels, known, NEAREST)
    both = bool(known.any()) and not bool(known.all())
    classes = {}
    for label, name in enumerate(split.names):
        own = split.labels == label
        count = int(own.sum())
        trained = both and bool(known[own].all())
        classes[name] = {
            "pictures": count,
            "found": int(reading.found[own].sum()),
            "found_known": int(reading.found_known[own].sum()) if trained else None,
            "share": reading.share[own].mean().item() if count > 1 else None,
            "tightness": reading.tightness.get(label),
        }
    mated = split.labels.bincount()[split.labels] > 1
    ratios = list(reading.tightness.values())
    return {
        "space": space.name,
        "routes": list(space.routes),
        "dim": space.positions.shape[1],
        "found": int(reading.found.sum()),
        "found_known": int(reading.found_known.sum()) if both else None,
        "share": reading.share[mated].mean().item() if mated.any() else None,
        "tightness": fmean(ratios) if ratios else None,
        "classes": classes,
    }
