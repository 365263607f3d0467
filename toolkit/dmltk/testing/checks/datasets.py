"""What every data set must do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor

from dmltk.data.split import Dataset, Split, load
from dmltk.testing.part import Part

LOOKED_AT = 64


def use(part: Part) -> list[Tensor]:
    """The first pictures of each split with their labels."""
    return [t for _, split in _splits(part) for t in load(split, range(min(len(split), 8)))]


def check_it_has_its_splits_and_a_card(part: Part) -> None:
    """A :class:`Dataset` with train and test, and a card of plain data."""
    built = part.build()
    assert isinstance(built, Dataset), f"the factory gives a {type(built).__name__}, no Dataset"
    assert len(built.train) and len(built.test), "train or test is empty"
    assert built.card.get("name"), "the card has no name"
    try:
        json.dumps(dict(built.card), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the card is no plain data: {error}") from error


def check_labels_have_no_gaps(part: Part) -> None:
    """Each split's labels are 0..C-1 and each class has a name."""
    for name, split in _splits(part):
        found = split.labels.unique().tolist()
        assert found == list(range(len(split.names))), (
            f"{name}: labels {found[:9]}… are not 0..{len(split.names) - 1}: see split.number"
        )
        assert len(set(split.names)) == len(split.names), f"{name}: two classes share a name"


def check_items_are_picture_label_and_index(part: Part) -> None:
    """`split[i]` is (3, H, W), uint8 or float in [0, 1], its label, and i."""
    for name, split in _splits(part):
        for row in range(min(len(split), LOOKED_AT)):
            image, label, index = split[row]
            assert index == row, f"{name}[{row}] says that it is row {index}"
            assert label == int(split.labels[row]), f"{name}[{row}] has another label than labels"
            assert image.ndim == 3 and image.shape[0] == 3, f"{name}[{row}] is {tuple(image.shape)}"
            if image.dtype != torch.uint8:
                assert image.is_floating_point(), f"{name}[{row}] is {image.dtype}"
                assert image.min() >= 0 and image.max() <= 1, f"{name}[{row}] leaves [0, 1]"


def check_a_batch_is_its_items(part: Part) -> None:
    """Rows read together, in any order and twice, are those read one by one."""
    for name, split in _splits(part):
        rows = [len(split) - 1, 0, 0]
        images, labels, index = load(split, rows)
        assert index.tolist() == rows and labels.tolist() == [int(split.labels[r]) for r in rows]
        for image, row in zip(images, rows, strict=True):
            one, _, _ = load(split, [row])
            assert torch.equal(one[0], image), f"{name}: row {row} in a batch is another picture"


def check_queries_are_rows(part: Part) -> None:
    """Where a gallery is set apart, both sides hold something and share classes."""
    test = part.build().test
    if test.is_query is None:
        return
    assert test.is_query.dtype == torch.bool and len(test.is_query) == len(test)
    asks, found = (set(test.labels[side].tolist()) for side in (test.is_query, ~test.is_query))
    assert asks and found, "the queries or the gallery are empty"
    assert asks & found, "no class has both a query and a picture in the gallery"


def _splits(part: Part) -> Iterator[tuple[str, Split]]:
    built = part.build()
    for name in ("train", "val", "test"):
        split = getattr(built, name)
        if split is not None:
            yield name, split
