from __future__ import annotations

import math

import pytest
import torch
from dmltk.evaluation import distances as exact
from dmltk.evaluation.neighbours import distances, found, read, shares, tightness
from hypothesis import given
from hypothesis import strategies as st


def drawn(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    grid = torch.randint(4, (count, 2), generator=generator).float()
    return grid, torch.arange(count) % 3


@given(st.integers(0, 9999), st.integers(4, 12))
def test_figures_are_those_of_slow_loops(seed: int, count: int) -> None:
    z, labels = drawn(seed, count)
    apart = [[math.dist(a, b) for b in z.tolist()] for a in z.tolist()]
    hit, inside, outside = [], {0: [], 1: [], 2: []}, {0: [], 1: [], 2: []}
    for i, row in enumerate(apart):
        like = [d for j, d in enumerate(row) if j != i and labels[j] == labels[i]]
        other = [d for j, d in enumerate(row) if labels[j] != labels[i]]
        hit.append(bool(like) and min(like) < min(other))
        inside[int(labels[i])].append(sum(like) / len(like) if like else math.nan)
        outside[int(labels[i])].append(sum(other) / len(other))
    assert found(z, labels).tolist() == hit
    expected = {
        label: sum(inside[label]) / sum(outside[label])
        for label in range(3)
        if sum(outside[label]) and not math.isnan(sum(inside[label]))
    }
    assert tightness(z, labels) == pytest.approx(expected)
    every = shares(z, labels, k=count)
    for label in range(3):
        own = int((labels == label).sum())
        assert every[label] == pytest.approx((own - 1) / (count - 1))


def test_shares_are_of_the_nearest() -> None:
    z = torch.tensor([[0.0], [1.0], [3.0], [10.0], [11.0]])
    labels = torch.tensor([0, 0, 1, 1, 1])
    assert shares(z, labels, k=1) == {0: 1.0, 1: pytest.approx(2 / 3)}
    assert shares(z, labels, k=2)[0] == 0.5


def test_like_rows_are_at_distance_zero_and_chunks_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    z = torch.randn(1, 64).repeat(40, 1) * 100
    labels = torch.arange(40) % 2
    whole = torch.cat([apart for _, apart in distances(z)])
    assert whole[0, 1:].max() == 0
    assert not found(z, labels).any()
    monkeypatch.setattr(exact, "CELLS", 100)
    assert torch.equal(torch.cat([apart for _, apart in distances(z)]), whole)


@given(st.integers(0, 9999), st.integers(4, 12), st.integers(1, 12))
def test_shares_are_those_of_sorted_neighbours(seed: int, count: int, k: int) -> None:
    z, labels = drawn(seed, count)
    each = []
    for i in range(count):
        # ties count against it: of two equally far the other label comes first
        items = [
            (math.dist(z[i].tolist(), z[j].tolist()), bool(labels[i] == labels[j]))
            for j in range(count)
            if j != i
        ]
        near = sorted(items)[:k]
        each.append(sum(same for _, same in near) / len(near))
    assert read(z, labels, k=k).share.tolist() == pytest.approx(each)
    means = {c: [e for i, e in enumerate(each) if labels[i] == c] for c in range(3)}
    assert shares(z, labels, k) == pytest.approx({c: sum(v) / len(v) for c, v in means.items()})


@given(st.integers(0, 9999), st.integers(4, 12))
def test_known_classes_are_read_without_the_others(seed: int, count: int) -> None:
    z, labels = drawn(seed, count)
    known = labels != 2
    alone = iter(found(z[known], labels[known]).tolist())
    expected = [next(alone) if there else False for there in known.tolist()]
    assert read(z, labels, known).found_known.tolist() == expected


def test_one_picture_and_none_are_defined() -> None:
    one = read(torch.ones(1, 2), torch.tensor([3]))
    assert (one.found.tolist(), one.share.tolist(), one.tightness) == ([False], [0.0], {})
    assert read(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)).found.tolist() == []
