"""Parts of the same classes: the first few of each, validation pictures of every class."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from dmltk.data.classification import Labelled, held_out, same_classes
from dmltk.data.published import Published
from dmltk.data.split import Dataset
from dmltk.errors import UserError
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split

SET = Published("Tiny", (), "", "tiny.tar", "its page", (30, 20), "none", "nobody")
LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60)


def marked(labels: list[int], start: int) -> Labelled:
    """Pictures whose first pixels tell which they are."""
    pixels = np.zeros((len(labels), 1, 8, 8), dtype=np.uint8)
    pixels[:, 0, 0, 0] = np.arange(start, start + len(labels))
    return Labelled.of(pixels, np.array(labels, dtype=np.uint8))


def tiny(val: float = 0.0, limit: int = 0, seed: int = 0) -> Dataset:
    train, test = marked([0, 1, 2] * 10, 0), marked([2, 1, 0, 0] * 5, 100)
    return same_classes(train, test, ["a", "b", "c"], SET, size=8, val=val, limit=limit, seed=seed)


def marks(split) -> list[int]:
    return [int(image[0, 0, 0]) for image, _, _ in split]


@given(LABELS, st.integers(0, 20))
def test_the_first_of_each_class_are_those_that_counting_gives(
    labels: list[int], limit: int
) -> None:
    counted: Counter[int] = Counter()
    kept = []
    for row, label in enumerate(labels):
        counted[label] += 1
        if not limit or counted[label] <= limit:
            kept.append(row)
    found = marked(labels, 0).first(limit)
    assert found.pixels[:, 0, 0, 0].tolist() == kept
    assert found.labels.tolist() == [labels[row] for row in kept]


@given(LABELS, st.floats(0.01, 0.99), st.integers(0, 5))
def test_every_class_gives_its_share_and_keeps_some(
    labels: list[int], share: float, seed: int
) -> None:
    counts = Counter(labels)
    wanted = {label: max(1, round(share * count)) for label, count in counts.items()}
    if any(wanted[label] == count for label, count in counts.items()):
        with pytest.raises(UserError, match="leaves no training picture"):
            held_out(torch.tensor(labels), share, seed)
        return
    held = held_out(torch.tensor(labels), share, seed)
    assert Counter(torch.tensor(labels)[held].tolist()) == wanted
    assert torch.equal(held, held_out(torch.tensor(labels), share, seed))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_scikit_learn_takes_as_many_of_each_class(share: float) -> None:
    labels = torch.arange(4).repeat_interleave(50)
    _, twin = train_test_split(labels.numpy(), test_size=share, stratify=labels, random_state=0)
    assert Counter(labels[held_out(labels, share, 0)].tolist()) == Counter(twin.tolist())


def test_parts_are_apart_and_together_all_there_is() -> None:
    data = tiny(val=0.3)
    assert data.val is not None
    assert data.train.names == data.val.names == data.test.names == ["a", "b", "c"]
    assert sorted(marks(data.train) + marks(data.val)) == list(range(30))
    assert marks(data.test) == list(range(100, 120))
    for split in (data.train, data.val):
        assert [mark % 3 for mark in marks(split)] == split.labels.tolist()
    assert data.card["pictures"] == {"train": 21, "val": 9, "test": 20}
    assert data.card["validation"] == {"share": 0.3, "of": "the pictures of each class", "seed": 0}
    assert data.card["shared_classes"] == {"val": 3, "test": 3}


def test_a_seed_draws_others_and_the_same_the_same() -> None:
    assert marks(tiny(0.3).val) == marks(tiny(0.3).val)
    assert marks(tiny(0.3).val) != marks(tiny(0.3, seed=1).val)


def test_a_limit_is_taken_first_and_said() -> None:
    data = tiny(val=0.5, limit=4)
    assert data.card["pictures"] == {"train": 6, "val": 6, "test": 12}
    assert sorted(marks(data.train) + marks(data.val)) == list(range(12))
    assert tiny().card["complete"] is True
    assert data.card["complete"] is False


def test_a_class_in_one_part_only_is_refused() -> None:
    train, test = marked([0, 1, 1], 0), marked([0, 1, 2], 0)
    with pytest.raises(UserError, match="class 'c' of Tiny has pictures in one of the two parts"):
        same_classes(train, test, ["a", "b", "c"], SET, size=8, val=0, limit=0, seed=0)
