from __future__ import annotations

from collections import Counter

import pytest
import torch
from dmltk.data.samplers import BalancedBatches, Deck
from dmltk.errors import UserError
from hypothesis import given, settings
from hypothesis import strategies as st

labellings = st.lists(st.integers(0, 9), min_size=1, max_size=80)
sizes = st.tuples(st.integers(1, 8), st.integers(1, 4))


def batches(labels: list[int], batch: int, per_class: int = 2, seed: int = 0, epoch: int = 0):
    sampler = BalancedBatches(labels, batch=batch, per_class=per_class, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


@given(labellings, sizes)
@settings(deadline=None)
def test_an_epoch_is_exact_and_batches_are_full_lists_of_python_ints(labels, size) -> None:
    draws, per_class = size
    sampler = BalancedBatches(labels, batch=draws * per_class, per_class=per_class, seed=1)
    made = list(sampler)
    assert len(made) == len(sampler) == max(1, len(labels) // (draws * per_class))
    for batch in made:
        assert len(batch) == draws * per_class
        assert all(type(row) is int and 0 <= row < len(labels) for row in batch)


@given(labellings, sizes)
@settings(deadline=None)
def test_pictures_of_a_class_are_adjacent_and_no_class_repeats_early(labels, size) -> None:
    draws, per_class = size
    classes = len(set(labels))
    for batch in batches(labels, draws * per_class, per_class):
        groups = [batch[i : i + per_class] for i in range(0, len(batch), per_class)]
        drawn = [{labels[row] for row in group} for group in groups]
        assert all(len(group) == 1 for group in drawn)
        counts = Counter(group.pop() for group in drawn)
        assert max(counts.values()) <= -(-draws // classes)
        for group in groups:
            assert len(set(group)) == min(per_class, labels.count(labels[group[0]]))


@given(labellings, sizes, st.integers(0, 5))
@settings(deadline=None)
def test_classes_and_pictures_come_round_in_turn(labels, size, epoch) -> None:
    draws, per_class = size
    rows = [row for b in batches(labels, draws * per_class, per_class, epoch=epoch) for row in b]
    of_class = Counter(labels[row] for row in rows)
    turns = [of_class[label] // per_class for label in set(labels)]
    assert max(turns) - min(turns) <= 1
    used = Counter(rows)
    for label in set(labels):
        uses = [used[row] for row in range(len(labels)) if labels[row] == label]
        assert max(uses) - min(uses) <= 1


@given(labellings, st.integers(0, 2**31), st.integers(0, 100))
@settings(deadline=None)
def test_batches_depend_on_seed_and_epoch_alone(labels, seed, epoch) -> None:
    sampler = BalancedBatches(labels, batch=4, seed=seed)
    for earlier in (0, epoch + 1):
        sampler.set_epoch(earlier)
        next(iter(sampler))
    sampler.set_epoch(epoch)
    assert list(sampler) == list(sampler) == batches(labels, 4, seed=seed, epoch=epoch)


def test_epochs_and_seeds_differ() -> None:
    labels = torch.arange(20).repeat_interleave(4).tolist()
    first = batches(labels, 8)
    assert first != batches(labels, 8, epoch=1)
    assert first != batches(labels, 8, seed=1)


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    batches([0, 0, 1, 1], 4)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_single_picture_class_repeats_its_picture() -> None:
    assert all(set(batch) == {0, 1} for batch in batches([5, 9], 4))
    assert sorted(batches([5, 9], 4)[0]) == [0, 0, 1, 1]


def test_impossible_batches_are_refused() -> None:
    for batch, per_class in ((5, 2), (0, 2), (4, 0), (-2, 2)):
        with pytest.raises(UserError, match="multiple"):
            BalancedBatches([0, 1], batch=batch, per_class=per_class, seed=0)
    with pytest.raises(UserError, match="no pictures"):
        BalancedBatches([], batch=2, seed=0)


def test_with_replacement_classes_and_pictures_are_drawn_anew() -> None:
    labels = torch.arange(100).repeat_interleave(58).tolist()[:5864]
    args = {"batch": 112, "per_class": 2, "with_replacement": True}
    sampler = BalancedBatches(labels, seed=1, **args)
    made = list(sampler)
    assert len(made) == len(sampler) == len(labels) // 112
    distinct = []
    for batch in made:
        assert len(batch) == 112
        pairs = [(labels[a], labels[b]) for a, b in zip(batch[::2], batch[1::2], strict=True)]
        assert all(a == b for a, b in pairs)
        distinct.append(len({a for a, _ in pairs}))
    expected = 100 * (1 - (1 - 1 / 100) ** 56)
    assert abs(sum(distinct) / len(distinct) - expected) < 2
    assert max(distinct) < 56
    flat = [row for batch in made for row in batch]
    once = len(labels) * (1 - (1 - 1 / len(labels)) ** len(flat))
    assert abs(len(set(flat)) - once) < 0.02 * len(labels)
    alike = sum(a == b for batch in made for a, b in zip(batch[::2], batch[1::2], strict=True))
    assert 10 < alike < 110
    again = BalancedBatches(labels, seed=1, **args)
    again.set_epoch(1)
    assert list(again) != made
    again.set_epoch(0)
    assert list(again) == made
    assert list(BalancedBatches(labels, seed=2, **args)) != made


@given(labellings, sizes)
@settings(deadline=None)
def test_with_replacement_batches_are_full_and_pairs_adjacent(labels, size) -> None:
    draws, per_class = size
    sampler = BalancedBatches(
        labels, batch=draws * per_class, per_class=per_class, seed=1, with_replacement=True
    )
    made = list(sampler)
    assert len(made) == max(1, len(labels) // (draws * per_class))
    for batch in made:
        groups = [batch[i : i + per_class] for i in range(0, len(batch), per_class)]
        assert [len({labels[row] for row in group}) for group in groups] == [1] * draws


def test_the_torch_loader_takes_the_sampler() -> None:
    from dmltk.data.glyphs import glyphs
    from dmltk.data.split import collate, load
    from torch.utils.data import DataLoader

    split = glyphs(classes=4, per_class=4, size=8).train
    sampler = BalancedBatches(split.labels, batch=4, seed=0)
    loader = DataLoader(split, batch_sampler=sampler, collate_fn=collate)
    for (images, labels, index), rows in zip(loader, sampler, strict=True):
        assert index.tolist() == rows
        assert torch.equal(images, load(split, rows)[0])
        assert torch.equal(labels, split.labels[rows])


@given(st.integers(1, 7), st.lists(st.integers(1, 9), max_size=12))
@settings(deadline=None)
def test_a_deck_never_deals_an_item_twice_in_a_round_of_a_hand(items, hands) -> None:
    deck = Deck(range(items), torch.Generator().manual_seed(0))
    dealt: Counter[int] = Counter()
    for count in hands:
        hand = deck.deal(count)
        assert len(hand) == count
        for start in range(0, count, items):
            block = hand[start : start + items]
            assert len(set(block)) == len(block)
        dealt.update(hand)
        counts = [dealt[item] for item in range(items)]
        assert max(counts) - min(counts) <= 1
