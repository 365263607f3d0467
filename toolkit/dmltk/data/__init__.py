"""Data sets, their splits, samplers and augmentations; importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmltk.data.split import Dataset, Split


def build(spec: Any, *, context: Mapping[str, Any] | None = None, **args: Any) -> Dataset:
    """A data set by its spec: `build("glyphs", classes=20)`.

    Args:
        spec: text such as "folder:photos,size=96", or a parsed spec.
        context: what is passed to a data set that asks for it by name.
        args: further arguments of the data set.
    """
    from dmltk import registry

    return registry.build("datasets", spec, context=context or {}, **args)


def info(dataset: Dataset) -> dict[str, object]:
    """The card of a data set: counts, picture size, licence, credits, sha256, skipped files."""
    return dict(dataset.card)


def contact_sheet(split: Split, rows: int, cols: int, path: str | Path) -> Path:
    """A PNG with a class a row and some of its pictures side by side.

    Args:
        split: its first `rows` classes are shown.
        rows: number of classes.
        cols: pictures of each; a class with fewer leaves its places empty.
        path: the file to write.
    """
    import torch
    from torchvision.utils import make_grid, save_image

    from dmltk.data.split import to_float

    lines = []
    for label in range(min(rows, len(split.names))):
        places = (split.labels == label).nonzero().flatten()[:cols].tolist()
        shown = to_float(split.pictures.read(places))
        empty = torch.ones(cols - len(places), *shown.shape[1:])
        lines.append(torch.cat([shown, empty]))
    save_image(make_grid(torch.cat(lines), nrow=cols), path)
    return Path(path)
