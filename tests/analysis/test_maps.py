"""The numbers beside the plots, against slow loops, and what is undefined."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from dmltk.analysis.maps import knn_accuracy, map_of, negatives, silhouette
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn(seed: int, count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    return labels[:, None] + torch.randn(count, 3, generator=generator).double(), labels


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(5, 16), st.integers(1, 3))
def test_the_figures_are_those_of_loops(seed: int, count: int, classes: int) -> None:
    z, labels = drawn(seed, count, classes)
    apart = [[math.dist(a, b) for b in z.tolist()] for a in z.tolist()]
    right, widths = 0, []
    for i in range(count):
        near = sorted((d, int(labels[j])) for j, d in enumerate(apart[i]) if j != i)[:10]
        votes = Counter(label for _, label in near)
        # of labels with as many votes the smallest wins
        right += min(votes, key=lambda c: (-votes[c], c)) == int(labels[i])
        means = {
            c: [apart[i][j] for j in range(count) if j != i and labels[j] == c]
            for c in range(classes)
        }
        own = means.pop(int(labels[i]))
        if own and means:
            inner = sum(own) / len(own)
            outer = min(sum(v) / len(v) for v in means.values())
            widths.append((outer - inner) / max(inner, outer))
        else:
            widths.append(0.0)
    assert knn_accuracy(z.numpy(), labels.numpy()) == pytest.approx(right / count)
    expected = None if classes == 1 else pytest.approx(sum(widths) / count)
    assert silhouette(z.numpy(), labels.numpy()) == expected
    pairs = [apart[i][j] for i in range(count) for j in range(i) if labels[i] != labels[j]]
    found = sorted(negatives(z, labels).tolist())
    assert found == pytest.approx(sorted(d * len(pairs) / sum(pairs) for d in pairs))


def test_a_map_is_the_same_twice_and_its_figures_are_of_the_space() -> None:
    z, labels = drawn(0, 40, 2)
    one, two = (map_of(z, labels, ["a", "b"], seed=3) for _ in range(2))
    assert one is not None and two is not None
    assert np.array_equal(one.points, two.points) and one.points.shape == (40, 2)
    assert one.figures["knn_accuracy"] == knn_accuracy(z.numpy(), labels.numpy())
    assert one.figures["chance"] == 0.5 and one.figures["seed"] == 3


@pytest.mark.parametrize("shape", [(4, 3), (5, 1), (6, 8)])
def test_few_points_have_a_map_or_none(shape: tuple[int, int]) -> None:
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    laid = map_of(z, torch.zeros(shape[0]).long(), ["one"], 0)
    assert (laid is None) == (shape[0] < 5)
    if laid is not None:
        assert laid.figures["silhouette"] is None and np.isfinite(laid.points).all()


def test_one_spot_has_no_map_and_one_class_no_negatives() -> None:
    same, labels = torch.ones(20, 4), torch.arange(20) % 2
    assert map_of(same, labels, ["a", "b"], 0) is None
    assert len(negatives(same, labels)) == 0
    assert len(negatives(torch.randn(20, 4), labels * 0)) == 0
