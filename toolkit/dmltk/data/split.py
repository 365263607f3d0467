"""Labelled pictures as rows, and the class-disjoint division into training and test."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dmltk.errors import UserError

PARTS = ("train", "val", "test")


class Pictures(Protocol):
    """Where the pictures of a split are kept: in memory or in files."""

    def __len__(self) -> int: ...

    def read(self, rows: Sequence[int]) -> Tensor:
        """The pictures of these rows: uint8 (n, 3, H, W), or float in [0, 1]."""

    def subset(self, rows: Sequence[int]) -> Pictures:
        """The same pictures, these rows only."""


class Memory:
    """Pictures held as one tensor.

    Args:
        pixels: (N, C, H, W), uint8, or float in [0, 1]; one channel is repeated to three.
    """

    def __init__(self, pixels: Tensor) -> None:
        if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
            shape = tuple(pixels.shape)
            raise UserError(f"pictures must be (N, 1 or 3, H, W), got {shape}; reshape them first")
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, rows: Sequence[int]) -> Tensor:
        picked = self.pixels[torch.as_tensor(rows, dtype=torch.long)]
        return picked.expand(-1, 3, -1, -1).contiguous()

    def subset(self, rows: Sequence[int]) -> Memory:
        return Memory(self.pixels[torch.as_tensor(rows, dtype=torch.long)])


class Split:
    """A sequence of labelled pictures: `split[i]` is (image, label, index).

    Args:
        pictures: N pictures.
        labels: (N,) integers, 0..C-1 without gaps.
        names: C class names.
    """

    def __init__(self, pictures: Pictures, labels: Tensor, names: Sequence[str]) -> None:
        labels = torch.as_tensor(labels, dtype=torch.long)
        if len(pictures) != len(labels):
            raise UserError(f"{len(pictures)} pictures but {len(labels)} labels; give one each")
        if labels.unique().tolist() != list(range(len(names))):
            raise UserError(f"labels must use each of 0..{len(names) - 1}; see split.number")
        self.pictures = pictures
        self.labels = labels
        self.names = list(names)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int, int]:
        row = range(len(self))[row]
        return self.pictures.read([row])[0], int(self.labels[row]), row

    def __iter__(self) -> Iterator[tuple[Tensor, int, int]]:
        return (self[row] for row in range(len(self)))


@dataclass(frozen=True)
class Dataset:
    """The splits of a data set and what is known of it.

    Args:
        train: training classes.
        val: validation classes, or None.
        test: classes never seen in training.
        card: name, counts, licence, hash, skipped files: plain data.
    """

    train: Split
    val: Split | None
    test: Split
    card: Mapping[str, object]


def number(names: Sequence[object]) -> tuple[Tensor, list[str]]:
    """Labels 0..C-1 in sorted order for labels of any kind: strings, gaps, 1-based.

    Returns:
        (N,) integers and the C class names.
    """
    classes = sorted(set(names), key=lambda name: (isinstance(name, str), name))
    place = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([place[name] for name in names], dtype=torch.long)
    return labels, [str(name) for name in classes]


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
        Rows of train, val (None where there is none) and test.

    Raises:
        UserError: no picture trains or none tests, or `val` beside validation pictures.
    """
    train, held, test = ([row for row, part in enumerate(parts) if part == p] for p in PARTS)
    for name, rows in (("train", train), ("test", test)):
        if not rows:
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
            says how many classes of a split are in an earlier one too (0: class-disjoint).
    """

    def part(rows: list[int]) -> Split:
        used, local = labels[rows].unique(return_inverse=True)
        return Split(pictures.subset(rows), local, [names[label] for label in used.tolist()])

    rows = split_classes(labels, val=val) if parts is None else split_parts(labels, parts, val=val)
    train, test = part(rows[0]), part(rows[2])
    held = part(rows[1]) if rows[1] is not None else None
    splits = {"train": train, **({"val": held} if held else {}), "test": test}
    counts = {
        "classes": {key: len(split.names) for key, split in splits.items()},
        "pictures": {key: len(split) for key, split in splits.items()},
        "single_picture_classes": {key: singles(split.labels) for key, split in splits.items()},
        "shared_classes": shared(splits),
    }
    return Dataset(train, held, test, {**card, **counts})


def shared(splits: Mapping[str, Split]) -> dict[str, int]:
    """How many classes of each split but the first are in an earlier one too."""
    seen: set[str] = set()
    counts = {}
    for key, split in splits.items():
        counts[key] = len(seen & set(split.names))
        seen |= set(split.names)
    return {key: count for key, count in counts.items() if key != "train"}


def singles(labels: Tensor) -> int:
    """How many classes have one picture only (their queries can never be found)."""
    return int((labels.bincount() == 1).sum())


def load(split: Split, rows: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The pictures of these rows as a batch.

    Returns:
        images float32 (n, 3, H, W) in [0, 1], labels (n,), index (n,).
    """
    index = torch.as_tensor(rows, dtype=torch.long)
    return to_float(split.pictures.read(index.tolist())), split.labels[index], index


def collate(items: Sequence[tuple[Tensor, int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """What `load` returns, from a list of items of a split (or of any like sequence)."""
    images, labels, index = zip(*items, strict=True)
    return to_float(torch.stack(images)), torch.tensor(labels), torch.tensor(index)


def to_float(images: Tensor) -> Tensor:
    """Pictures as float32 in [0, 1], from uint8 or float."""
    if images.dtype == torch.uint8:
        return images.float().div_(255)
    return images.float()


def digest(*tensors: Tensor) -> str:
    """sha256 of the bytes of tensors, for the card."""
    seen = hashlib.sha256()
    for tensor in tensors:
        seen.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        seen.update(tensor.contiguous().numpy().data)
    return seen.hexdigest()
