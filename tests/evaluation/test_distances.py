"""Figures that need exact distances, against slow loops."""

from __future__ import annotations

import math

import pytest
import torch
from dmltk import registry
from dmltk.description import describe
from dmltk.evaluation import distances
from dmltk.evaluation.distances import between
from hypothesis import given
from hypothesis import strategies as st

from .test_metrics import Sides, among, neighbours, random_space, sides


def dist(given: Sides, i: int, j: int) -> float:
    return math.dist(given[0][i].tolist(), given[1][j].tolist())


@given(sides(), st.integers(1, 14))
def test_precision_is_that_of_sorted_neighbours(given: Sides, k: int) -> None:
    scores = []
    for i in range(len(given[0])):
        near = neighbours(given, i)
        if any(near):
            scores.append(sum(near[:k]) / len(near[:k]))
    expected = sum(scores) / len(scores) if scores else None
    found = registry.build("metrics", f"precision:k={k}")(*given)
    assert found == {f"precision@{k}": expected and pytest.approx(expected)}


def test_precision_at_one_is_recall_at_one() -> None:
    given = random_space()
    found = registry.build("metrics", "precision:1")(*given)["precision@1"]
    assert found == pytest.approx(registry.build("metrics", "recall")(*given)["recall@1"])


@given(sides())
def test_tightness_is_that_of_pair_loops(given: Sides) -> None:
    query, gallery, labels, others, own = given
    inside: dict[int, list[float]] = {}
    outside: dict[int, list[float]] = {}
    for i in range(len(query)):
        for j in range(len(gallery)):
            if j != int(own[i]):
                into = inside if labels[i] == others[j] else outside
                into.setdefault(int(labels[i]), []).append(dist(given, i, j))
    ratios = [
        (sum(inside[c]) / len(inside[c])) / (sum(outside[c]) / len(outside[c]))
        for c in inside.keys() & outside.keys()
        if sum(outside[c])
    ]
    expected = sum(ratios) / len(ratios) if ratios else None
    found = registry.build("metrics", "tightness")(*given)["tightness"]
    assert found == (expected if expected is None else pytest.approx(expected))


def test_a_tighter_space_may_find_less() -> None:
    """The confound that the metric warns of."""
    tight, recall = (registry.build("metrics", n) for n in ("tightness", "recall:ks=[1]"))
    twins = torch.tensor([[0.0], [2], [1], [3], [100], [102], [101], [103]])
    apart = among(twins, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    pairs = torch.tensor([[0.0], [1], [10], [11], [4], [5], [14], [15]])
    mixed = among(pairs, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    assert tight(*apart)["tightness"] < 0.1 < 0.9 < tight(*mixed)["tightness"]
    assert recall(*apart)["recall@1"] == 0 and recall(*mixed)["recall@1"] == 1
    assert "never choose a model by it" in " ".join(describe("metrics", "tightness").text.split())


@given(sides())
def test_identity_confusion_is_that_of_loops(given: Sides) -> None:
    lost = []
    for i in range(len(given[0])):
        own = int(given[4][i])
        if own >= 0:
            others = [dist(given, i, j) for j in range(len(given[1])) if j != own]
            lost.append(dist(given, i, own) >= min(others, default=math.inf))
    expected = sum(lost) / len(lost) if lost else None
    found = registry.build("metrics", "identity_confusion")(*given)["identity_confusion"]
    assert found == (expected if expected is None else pytest.approx(expected))


def test_clean_pictures_confuse_nobody_but_their_duplicates() -> None:
    confused = registry.build("metrics", "identity_confusion")
    z = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)) * 100
    assert confused(*among(z, torch.zeros(40).long())) == {"identity_confusion": 0.0}
    z[1] = z[0]
    assert confused(*among(z, torch.zeros(40).long())) == {"identity_confusion": 2 / 40}
    away = torch.full((40,), -1)
    assert confused(z, z, away, away, away) == {"identity_confusion": None}


@given(st.integers(0, 999))
def test_distances_of_whole_numbers_are_exact(seed: int) -> None:
    pixels = torch.randint(256, (9, 50), generator=torch.Generator().manual_seed(seed))
    pixels[3] = pixels[5]
    squares = (pixels[:, None] - pixels).square().sum(2)
    ((_, apart),) = between(pixels.float(), pixels.float())
    assert torch.equal(apart.square().round().long(), squares)
    assert apart[3, 5] == 0 and torch.equal(apart[3], apart[5])
    ((_, halves),) = between(pixels + 0.5, pixels + 0.5)
    assert halves[3, 5] == 0 and torch.allclose(halves, apart)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = random_space()
    before = [registry.build("metrics", n)(*given) for n in ("tightness", "identity_confusion")]
    monkeypatch.setattr(distances, "CELLS", 100)
    after = [registry.build("metrics", n)(*given) for n in ("tightness", "identity_confusion")]
    assert before[0] == {"tightness": pytest.approx(after[0]["tightness"])}
    assert before[1] == after[1]
