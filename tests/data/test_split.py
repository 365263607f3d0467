from __future__ import annotations

import pytest
import torch
from dmltk.data.division import divide, split_classes
from dmltk.data.split import Memory, Split, collate, load, number
from dmltk.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

label_lists = st.lists(st.integers(0, 12), min_size=1, max_size=60).filter(
    lambda labels: len(set(labels)) >= 4
)


def tiny(labels: list[int], channels: int = 3) -> tuple[Memory, torch.Tensor, list[str]]:
    numbers, names = number(labels)
    pixels = torch.randint(0, 256, (len(labels), channels, 4, 5), dtype=torch.uint8)
    return Memory(pixels), numbers, names


@given(label_lists, st.sampled_from([0.0, 0.1, 0.5]))
def test_rows_are_divided_once_each_with_disjoint_ordered_classes(
    labels: list[int], val: float
) -> None:
    numbers, names = number(labels)
    train, held, test = split_classes(numbers, val=val)
    assert sorted(train + (held or []) + test) == list(range(len(labels)))
    parts = [{int(numbers[row]) for row in part} for part in (train, held or [], test)]
    assert sorted(label for part in parts for label in part) == list(range(len(names)))
    flat = [label for part in parts for label in sorted(part)]
    assert flat == sorted(flat)
    assert len(parts[0]) + len(parts[1]) == len(names) // 2
    assert (held is None) == (val == 0)


@given(label_lists)
def test_every_picture_keeps_its_class_name_and_labels_are_contiguous(labels: list[int]) -> None:
    pictures, numbers, names = tiny(labels)
    data = divide(pictures, numbers, names, val=0.4, card={"name": "tiny"})
    seen = {}
    assert data.val is not None
    for split in (data.train, data.val, data.test):
        assert split.labels.unique().tolist() == list(range(len(split.names)))
        for image, label, index in split:
            assert split.labels[index] == label
            seen[image.numpy().tobytes()] = split.names[label]
    for row, label in enumerate(labels):
        assert seen[pictures.pixels[row].numpy().tobytes()] == str(label)


def test_strings_gaps_and_one_based_labels_become_contiguous() -> None:
    assert number([7, 3, 7, 100])[0].tolist() == [1, 0, 1, 2]
    labels, names = number(["b", "a", "b"])
    assert labels.tolist() == [1, 0, 1]
    assert names == ["a", "b"]
    assert number([2, 10, 2])[1] == ["2", "10"]


def test_single_picture_classes_are_counted_in_the_card() -> None:
    data = divide(*tiny([0, 0, 1, 2, 3, 3]), card={"name": "tiny"})
    assert data.card["single_picture_classes"] == {"train": 1, "test": 1}
    assert data.card["classes"] == {"train": 2, "test": 2}
    assert data.card["pictures"] == {"train": 3, "test": 3}
    assert data.card["name"] == "tiny"


def test_load_equals_collated_items() -> None:
    data = divide(*tiny([0, 0, 1, 1, 1], channels=1), card={})
    rows = [2, 0, 1]
    fast = load(data.test, rows)
    slow = collate([data.test[row] for row in rows])
    for left, right in zip(fast, slow, strict=True):
        assert torch.equal(left, right)
    assert fast[0].shape == (3, 3, 4, 5)
    assert fast[0].dtype == torch.float32
    assert fast[2].tolist() == rows


def test_float_pictures_are_passed_on_unscaled() -> None:
    pixels = torch.rand(2, 3, 4, 4)
    split = Split(Memory(pixels), torch.tensor([0, 1]), ["a", "b"])
    assert torch.equal(load(split, [0, 1])[0], pixels)


def test_loading_does_not_change_the_pictures() -> None:
    pixels = torch.rand(2, 1, 4, 4)
    split = Split(Memory(pixels.clone()), torch.tensor([0, 1]), ["a", "b"])
    images, _, _ = load(split, [0, 1])
    images += 1
    assert torch.equal(split.pictures.read([0, 1])[:, :1], pixels)


def test_rows_outside_are_an_index_error_and_negative_ones_count_from_the_end() -> None:
    split = divide(*tiny([0, 0, 1, 1]), card={}).train
    assert split[-1][2] == 1
    with pytest.raises(IndexError):
        split[2]
    assert len(list(split)) == 2


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2"):
        split_classes(torch.tensor([0, 0]))
    with pytest.raises(UserError, match="at least 4"):
        split_classes(torch.tensor([0, 1, 2]), val=0.1)
    with pytest.raises(UserError, match="0 classes"):
        split_classes(torch.tensor([], dtype=torch.long))


def test_labels_that_skip_a_class_or_a_picture_are_refused() -> None:
    pictures = Memory(torch.zeros(2, 3, 4, 4))
    with pytest.raises(UserError, match="labels"):
        Split(pictures, torch.tensor([0, 2]), ["a", "b", "c"])
    with pytest.raises(UserError, match="2 pictures but 1"):
        Split(pictures, torch.tensor([0]), ["a"])
    with pytest.raises(UserError, match="reshape"):
        Memory(torch.zeros(2, 4, 4))
