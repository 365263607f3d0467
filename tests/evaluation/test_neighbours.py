from __future__ import annotations

import math

import pytest
import torch
from dmltk.evaluation import neighbours
from dmltk.evaluation.neighbours import distances, found, shares, tightness
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
    for label, value in tightness(z, labels).items():
        expected = sum(inside[label]) / sum(outside[label]) if sum(outside[label]) else math.nan
        assert value == pytest.approx(expected, nan_ok=True)
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
    monkeypatch.setattr(neighbours, "CELLS", 100)
    assert torch.equal(torch.cat([apart for _, apart in distances(z)]), whole)
