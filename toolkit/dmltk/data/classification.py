"""Data sets whose test pictures are of the classes that train: to pretrain, then to classify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from dmltk import seeds
from dmltk.data.division import divide
from dmltk.data.published import Bytes, Published
from dmltk.data.split import Dataset, Memory, digest
from dmltk.errors import UserError


class Resized(Memory):
    """Pictures in memory, brought to a size when they are read (bilinear, antialiased).

    Args:
        pixels: (N, C, H, W) uint8, C 1 or 3; one channel is repeated to three.
        size: height and width that are read.
    """

    def __init__(self, pixels: Tensor, size: int) -> None:
        super().__init__(pixels)
        self.size = size

    def read(self, rows: Sequence[int]) -> Tensor:
        found = super().read(rows)
        if not len(found):
            return found.new_empty(0, 3, self.size, self.size)
        return functional.resize(found, [self.size, self.size], antialias=True)

    def subset(self, rows: Sequence[int]) -> Resized:
        return Resized(super().subset(rows).pixels, self.size)


@dataclass(frozen=True)
class Labelled:
    """Pictures (N, C, H, W) uint8 and their labels (N,), 0..C-1 in the authors' numbering."""

    pixels: Tensor
    labels: Tensor

    @classmethod
    def of(cls, pixels: Bytes, labels: Bytes) -> Labelled:
        """The same from arrays, which are copied."""
        return cls(torch.tensor(pixels), torch.tensor(labels).long())

    def first(self, limit: int) -> Labelled:
        """The first `limit` pictures of each class, in their order; 0 for all."""
        if not limit:
            return self
        rows = [(self.labels == label).nonzero()[:limit, 0] for label in self.labels.unique()]
        kept = torch.cat(rows).sort().values
        return Labelled(self.pixels[kept], self.labels[kept])


def paired(found: Mapping[str, Bytes], path: str, published: Published) -> list[Labelled]:
    """Training and test pictures whose labels lie in files of their own.

    Args:
        found: arrays by file; in the order of `published.files`: pictures and labels of training,
            then of the test.
        path: where they were found, for the error.
        published: the data set.

    Raises:
        UserError: a file holds another number of labels than there are pictures.
    """
    names = published.files
    pairs = list(zip(names[::2], names[1::2], strict=True))
    apart = [
        f"{len(found[pictures]):,} pictures in {pictures} but {len(found[labels]):,} labels in "
        f"{labels}"
        for pictures, labels in pairs
        if len(found[pictures]) != len(found[labels])
    ]
    if apart:
        raise UserError(
            f"files of {published.name} in '{path}' do not belong together: {', '.join(apart)}; "
            f"get {published.archive} again from {published.page}"
        )
    return [Labelled.of(found[pictures], found[labels]) for pictures, labels in pairs]


def same_classes(
    train: Labelled,
    test: Labelled,
    names: Sequence[str],
    published: Published,
    *,
    size: int,
    val: float,
    limit: int,
    seed: int,
) -> Dataset:
    """A data set of training and test pictures of the same classes, numbered alike.

    Args:
        train: training pictures.
        test: test pictures.
        names: of all classes.
        published: what its authors say of it; the card says whether all their pictures are here.
        size: height and width that pictures are brought to when read.
        val: share of the pictures of every training class kept for validation.
        limit: only the first so many of each class, in training and test; 0 for all.
        seed: of the draw of the validation pictures.

    Raises:
        UserError: a class has pictures in one part only, or too few for `val`.
    """
    train, test = train.first(limit), test.first(limit)
    apart = set(train.labels.tolist()) ^ set(test.labels.tolist())
    if apart:
        raise UserError(
            f"the class '{names[min(apart)]}' of {published.name} has pictures in one of the two "
            f"parts, training and test, only; both must show the same classes"
        )
    held = held_out(train.labels, val, seed)
    parts = ["val" if kept else "train" for kept in held.tolist()] + ["test"] * len(test.labels)
    credit = {"name": published.name, "licence": published.licence, "credit": published.credit}
    card = {
        "name": published.name,
        "size": size,
        "licence": published.licence,
        "credits": [credit],
        "sha256": digest(train.pixels, train.labels, test.pixels, test.labels),
        "skipped": {},
        "complete": (len(train.labels), len(test.labels)) == published.pictures,
    }
    if val:
        card["validation"] = {"share": val, "of": "the pictures of each class", "seed": seed}
    return divide(
        Resized(torch.cat([train.pixels, test.pixels]), size),
        torch.cat([train.labels, test.labels]),
        names,
        card=card,
        parts=parts,
    )


def held_out(labels: Tensor, share: float, seed: int) -> Tensor:
    """Which pictures are for validation: the same share of each class, one at least.

    Args:
        labels: (N,) of the training pictures.
        share: of each class; 0 for none.
        seed: of the draw.

    Returns:
        (N,) bool.

    Raises:
        UserError: a class would have none left.
    """
    held = torch.zeros(len(labels), dtype=torch.bool)
    if not share:
        return held
    draws = seeds.generator(seed, "validation")
    for label in labels.unique():
        rows = (labels == label).nonzero().flatten()
        count = max(1, round(share * len(rows)))
        if count == len(rows):
            raise UserError(
                f"val={share} leaves no training picture of a class that has {len(rows)}; "
                f"take a smaller share, or more pictures"
            )
        held[rows[torch.randperm(len(rows), generator=draws)[:count]]] = True
    return held
