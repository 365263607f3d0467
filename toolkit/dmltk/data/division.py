"""The division of labelled pictures into training, validation and test; the card's counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dmltk.data.split import Dataset, Pictures, Split
from dmltk.errors import UserError

PARTS = ("train", "val", "test", "query", "gallery")


def split_classes(
    labels: Tensor, *, val: float = 0.0
) -> tuple[list[int], list[int] | None, list[int]]:
    """Rows of a class-disjoint division: the first half of the classes trains, the rest tests.

    Args:
        labels: (N,) integers, 0..C-1 in the order of the classes.
        val: share of the training classes, the last ones, kept for validation.

    Returns:
        Rows of train, val (None where `val` is 0) and test.

    Raises:
        UserError: too few classes for the parts asked for.
    """
    classes = int(labels.max()) + 1 if len(labels) else 0
    half = classes // 2
    held = max(1, round(val * half)) if val > 0 else 0
    if half - held < 1:
        need = 4 if held else 2
        raise UserError(
            f"a data set of {classes} classes cannot be divided into disjoint training"
            f"{', validation' if held else ''} and test classes; it takes at least {need}"
        )

    def rows(first: int, last: int) -> list[int]:
        inside = (labels >= first) & (labels < last)
        return [int(row) for row in inside.nonzero().flatten()]

    middle = rows(half - held, half) if held else None
    return rows(0, half - held), middle, rows(half, classes)


def split_parts(
    labels: Tensor, parts: Sequence[str], *, val: float = 0.0
) -> tuple[list[int], list[int] | None, list[int]]:
    """Rows of a division that the data set brings along.

    Args:
        labels: (N,) integers.
        parts: N times one of PARTS.
        val: share of the training classes, the last ones, kept for validation.

    Returns:
        Rows of train, val (None where there is none) and test (queries and gallery together).

    Raises:
        UserError: no picture trains or none tests, `val` beside validation pictures, or queries
            without a gallery, a gallery without queries, or either beside test pictures.
    """
    rows = {name: [row for row, part in enumerate(parts) if part == name] for name in PARTS}
    train, held, test = rows["train"], rows["val"], tested(rows)
    for name, inside in (("train", train), ("test", test)):
        if not inside:
            raise UserError(f"no picture of the data set is in the split '{name}'; it needs some")
    if val > 0 and held:
        raise UserError(f"val={val} cannot be given: the data set has a validation split already")
    if val > 0:
        classes = labels[train].unique()
        first = len(classes) - max(1, round(val * len(classes)))
        if first < 1:
            raise UserError(f"val={val} leaves no training class of {len(classes)}; leave it out")
        kept = [row for row in train if labels[row] < classes[first]]
        held, train = [row for row in train if labels[row] >= classes[first]], kept
    return train, held or None, test


def tested(rows: Mapping[str, list[int]]) -> list[int]:
    """The rows of the test split: those of 'test', or of 'query' and 'gallery' together.

    Raises:
        UserError: one of those two without the other, or beside 'test'.
    """
    apart = [name for name in ("query", "gallery") if rows[name]]
    if apart and rows["test"]:
        raise UserError(
            f"pictures of the split 'test' are queries and gallery at once, so it cannot stand "
            f"beside the split '{apart[0]}'; use either 'test', or 'query' and 'gallery'"
        )
    if len(apart) == 1:
        other = "gallery" if apart[0] == "query" else "query"
        raise UserError(f"the data set has a split '{apart[0]}' but none '{other}'; it needs both")
    return sorted(rows["test"] + rows["query"] + rows["gallery"])


def divide(
    pictures: Pictures,
    labels: Tensor,
    names: Sequence[str],
    *,
    val: float = 0.0,
    card: Mapping[str, object],
    parts: Sequence[str] | None = None,
) -> Dataset:
    """A data set of splits, with the counts added to its card.

    Args:
        pictures: N pictures.
        labels: (N,) integers, 0..C-1 in the order of the classes.
        names: C class names.
        val: share of the training classes kept for validation.
        card: what else is known: name, size, licence, sha256…
        parts: each picture's split, one of PARTS; None divides the classes in halves. The card
            says how many classes of a split are in an earlier one too (0: class-disjoint), and
            of queries and a gallery how many of each there are.

    Raises:
        UserError: the classes or pictures do not suffice for the parts.
    """

    def part(rows: list[int]) -> Split:
        used, local = labels[rows].unique(return_inverse=True)
        inside = [parts[row] for row in rows] if parts is not None else []
        is_query = torch.tensor([p == "query" for p in inside]) if "query" in inside else None
        known = [names[label] for label in used.tolist()]
        return Split(pictures.subset(rows), local, known, is_query)

    rows = split_classes(labels, val=val) if parts is None else split_parts(labels, parts, val=val)
    train, test = part(rows[0]), part(rows[2])
    held = part(rows[1]) if rows[1] is not None else None
    splits = {"train": train, **({"val": held} if held else {}), "test": test}
    told = {**counts(splits), "shared_classes": shared(splits), **sides(test)}
    return Dataset(train, held, test, {**card, **told})


def counts(splits: Mapping[str, Split]) -> dict[str, object]:
    """Classes and pictures of each split, for the card."""
    return {
        "classes": {key: len(split.names) for key, split in splits.items()},
        "pictures": {key: len(split) for key, split in splits.items()},
        "single_picture_classes": {key: singles(split.labels) for key, split in splits.items()},
    }


def shared(splits: Mapping[str, Split]) -> dict[str, int]:
    """How many classes of each split but the first are in an earlier one too."""
    seen: set[str] = set()
    counts = {}
    for key, split in splits.items():
        counts[key] = len(seen & set(split.names))
        seen |= set(split.names)
    return {key: count for key, count in counts.items() if key != "train"}


def sides(test: Split) -> dict[str, dict[str, int]]:
    """How many queries and gallery pictures a test split has, where a gallery is set apart.

    Raises:
        UserError: where the gallery holds no class of any query.
    """
    if test.is_query is None:
        return {}
    lost = ~torch.isin(test.labels[test.is_query], test.labels[~test.is_query])
    if lost.all():
        raise UserError(
            "the gallery holds no class of any query, so nothing can be found; "
            "give queries and gallery the same labels"
        )
    queries = len(lost)
    counts = {"queries": queries, "gallery": len(test) - queries}
    return {"retrieval": {**counts, "queries_without_match": int(lost.sum())}}


def singles(labels: Tensor) -> int:
    """How many classes have one picture only (their queries can never be found)."""
    return int((labels.bincount() == 1).sum())
