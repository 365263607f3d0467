"""Labelled pictures as rows: in memory or in files, and a few of them as a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from dmltk.convert import number as number_of
from dmltk.errors import UserError
from dmltk.spec import parse


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
        is_query: (N,) bool, for a test split with a gallery of its own: which pictures are
            queries; the others are the gallery. None: every picture is both.
        pairs: (M, 2) rows, for a training split that lists pairs and knows no names: these share
            a label where they are said to be alike, and nothing is known of any others.
    """

    def __init__(
        self,
        pictures: Pictures,
        labels: Tensor,
        names: Sequence[str],
        is_query: Tensor | None = None,
        pairs: Tensor | None = None,
    ) -> None:
        labels = torch.as_tensor(labels, dtype=torch.long)
        if len(pictures) != len(labels):
            raise UserError(f"{len(pictures)} pictures but {len(labels)} labels; give one each")
        if labels.unique().tolist() != list(range(len(names))):
            raise UserError(f"labels must use each of 0..{len(names) - 1}; see split.number")
        if pairs is not None and (pairs.ndim != 2 or pairs.shape[1] != 2):
            raise UserError(f"pairs must be (M, 2) rows, got {tuple(pairs.shape)}")
        self.pictures = pictures
        self.labels = labels
        self.names = list(names)
        self.is_query = is_query
        self.pairs = pairs

    @property
    def queries(self) -> list[int]:
        """The rows that are queries: all of them where no gallery is set apart."""
        if self.is_query is None:
            return list(range(len(self)))
        return [int(row) for row in self.is_query.nonzero().flatten()]

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
        test: classes never seen in training (of a few sets those that train, numbered alike; the
            card counts them), perhaps divided into queries and a gallery.
        card: name, counts, licence, hash, skipped files: plain data.
    """

    dmltk_kind: ClassVar[str] = "datasets"

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


def named_size(spec: str) -> int:
    """The picture size that a data set's spec names; 0 where it names none."""
    named = parse(spec).kwargs.get("size")
    found = number_of(named) if isinstance(named, str) else None
    return int(found or 0)


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
