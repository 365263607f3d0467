from __future__ import annotations

import warnings
from collections import Counter

import pytest
import torch
from dmltk import UserError
from dmltk.attacks.targets import draw, permute
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-3, 6), min_size=1, max_size=12),
    st.lists(st.integers(-3, 6), min_size=1, max_size=20),
    st.integers(1, 8),
    st.integers(0, 2**31),
)
def test_targets_are_of_other_classes_and_distinct_while_there_are_enough(mine, pool, count, seed):
    others = [set(pool) - {label} for label in mine]
    labels, pool_labels = torch.tensor(mine), torch.tensor(pool)
    if not all(others):
        # told for the whole batch only where the pool is one class
        if len(set(pool)) == 1:
            with pytest.raises(UserError, match="no other class"):
                draw(labels, pool_labels, count, gen(seed))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = draw(labels, pool_labels, count, gen(seed))
    assert rows.shape == (len(mine), count)
    for picked, free in zip(rows.tolist(), others, strict=True):
        classes = [pool[row] for row in picked]
        assert set(classes) <= free
        rounds = Counter(classes)
        assert len(rounds) == min(count, len(free))
        assert max(rounds.values()) - min(rounds.values()) <= 1


@pytest.mark.parametrize("label", [0, 9])
def test_every_other_class_and_every_member_is_drawn_evenly(label):
    pool = torch.tensor([0, 0, 1, 1, 1, 1, 2, 3, 3])
    rows = draw(torch.full((40000,), label), pool, 2, gen())
    classes = pool[rows]
    free = [c for c in range(4) if c != label]
    for t in range(2):
        for c in free:
            assert (classes[:, t] == c).float().mean().item() == pytest.approx(
                1 / len(free), abs=0.01
            )
    ones = rows[classes == 1]
    for row in (2, 3, 4, 5):
        assert (ones == row).float().mean().item() == pytest.approx(0.25, abs=0.02)
    pairs = Counter(map(tuple, classes.tolist()))
    expected = 40000 / (len(free) * (len(free) - 1))
    assert all(n == pytest.approx(expected, rel=0.1) for n in pairs.values())


def test_too_few_classes_repeat_and_warn():
    with pytest.warns(UserWarning, match="5 targets were asked for and only 2 other"):
        draw(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), 5, gen())


def test_enough_classes_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), 2, gen())
        draw(torch.tensor([7]), torch.tensor([0, 1, 2]), 3, gen())


def test_a_large_reference_is_drawn_from_without_a_table_of_pairs():
    """112 pictures, 11 316 classes, 60 000 rows: no tensor grows with pictures times rows."""
    pool = torch.arange(60000) % 11316
    labels = torch.arange(112)
    largest = 0

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    with Watch():
        rows = draw(labels, pool, 10, gen())
    assert (pool[rows] != labels[:, None]).all()
    assert largest == 60000


def test_a_permutation_is_one_whatever_the_labels():
    rows = permute(5, 7, gen())
    assert rows.shape == (7, 5)
    assert all(sorted(column) == list(range(7)) for column in rows.T.tolist())
    assert len({tuple(column) for column in rows.T.tolist()}) > 1
