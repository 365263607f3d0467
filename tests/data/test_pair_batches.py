"""Batches of pairs: their shape, their chances, and that an epoch hangs on (seed, epoch) alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from dmltk.data.samplers import PairBatches
from dmltk.errors import UserError
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

labellings = st.lists(st.integers(0, 6), min_size=3, max_size=40)
halves = st.integers(1, 6)
lists = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=30)


def both_sorts(labels: list[int]) -> bool:
    return 1 < len(set(labels)) < len(labels)


def adjacent(batches: list[list[int]]) -> list[tuple[int, int]]:
    return [(a, b) for rows in batches for a, b in zip(rows[::2], rows[1::2], strict=True)]


@given(labellings, halves, st.integers(0, 9))
@settings(deadline=None)
def test_drawn_pairs_are_two_pictures_in_full_batches_of_ints(labels, half, epoch) -> None:
    assume(both_sorts(labels))
    sampler = PairBatches(labels, batch=2 * half, seed=1)
    sampler.set_epoch(epoch)
    made = list(sampler)
    assert len(made) == len(sampler) == max(1, len(labels) // (2 * half))
    for rows in made:
        assert len(rows) == 2 * half
        assert all(type(row) is int and 0 <= row < len(labels) for row in rows)
    assert all(a != b for a, b in adjacent(made))


@given(lists, halves, st.integers(0, 9))
@settings(deadline=None)
def test_listed_pairs_come_once_an_epoch(pairs, half, epoch) -> None:
    labels = [row % 3 for row in range(10)]
    assume(len({labels[a] == labels[b] for a, b in pairs}) == 2)
    sampler = PairBatches(labels, torch.tensor(pairs), batch=2 * half, seed=0)
    sampler.set_epoch(epoch)
    made = list(sampler)
    assert Counter(adjacent(made)) == Counter(pairs)
    assert len(made) == len(sampler)
    assert all(len(rows) == 2 * half for rows in made[:-1])
    assert 2 <= len(made[-1]) <= 2 * half


@given(labellings, st.integers(0, 2**31), st.integers(0, 50), st.booleans())
@settings(deadline=None)
def test_an_epoch_hangs_on_seed_and_epoch_alone(labels, seed, epoch, listed) -> None:
    assume(both_sorts(labels))
    pairs = torch.combinations(torch.arange(len(labels))) if listed else None

    def at(earlier: tuple[int, ...]) -> list[list[int]]:
        sampler = PairBatches(labels, pairs, batch=6, seed=seed)
        for one in earlier:
            sampler.set_epoch(one)
            next(iter(sampler))
        sampler.set_epoch(epoch)
        return list(sampler)

    before = torch.get_rng_state()
    assert at(()) == at((0, epoch + 3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("listed", [False, True])
def test_epochs_and_seeds_differ(listed: bool) -> None:
    labels = torch.arange(12) % 4
    pairs = torch.combinations(torch.arange(12)) if listed else None
    made = {}
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        sampler = PairBatches(labels, pairs, batch=6, seed=seed)
        sampler.set_epoch(epoch)
        made[seed, epoch] = str(list(sampler))
    assert len(set(made.values())) == 3


def test_sorts_classes_and_pictures_are_alike_likely() -> None:
    """Each pair's share of 40,000 draws against the chance that the rule gives it."""
    labels = [0, 0, 0, 1, 1, 2]
    sampler = PairBatches(labels, batch=8000, seed=3)
    drawn: list[tuple[int, int]] = []
    for epoch in range(10):
        sampler.set_epoch(epoch)
        drawn += adjacent(list(sampler))
    seen = Counter(drawn)
    sizes = Counter(labels)
    for a in range(6):
        for b in range(6):
            if a == b:
                continue
            x, y = labels[a], labels[b]
            ordered = sizes[x] * (sizes[x] - 1) if x == y else 6 * sizes[x] * sizes[y]
            chance = (0.25 if x == y else 0.5) / ordered
            gap = abs(seen[a, b] - 40_000 * chance)
            assert gap < 5 * (40_000 * chance) ** 0.5, (a, b)


@pytest.mark.parametrize(
    ("labels", "pairs", "missing"),
    [
        ([0, 0, 0], None, "no unlike pair"),
        ([0, 1, 2], None, "no like pair"),
        ([0, 0, 1, 1], torch.tensor([[0, 1], [2, 3]]), "no unlike pair"),
        ([0, 0, 1, 1], torch.tensor([[0, 2]]), "no like pair"),
    ],
)
def test_one_sort_alone_is_refused(labels: list[int], pairs: Tensor | None, missing: str) -> None:
    with pytest.raises(UserError, match=missing):
        PairBatches(labels, pairs, batch=2, seed=0)


@pytest.mark.parametrize("batch", [0, 1, 7, -2])
def test_batches_that_hold_no_pairs_are_refused(batch: int) -> None:
    with pytest.raises(UserError, match="even"):
        PairBatches([0, 0, 1], batch=batch, seed=0)
