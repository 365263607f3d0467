from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from dmltk import registry
from dmltk.errors import DmltkError, UserError
from dmltk.evaluation import metrics, space
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from torch import Tensor
from torch.nn.functional import normalize

Sides = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@st.composite
def sides(draw: st.DrawFn) -> Sides:
    """Small whole numbers, so that distances are exact and ties and duplicates abound."""
    dim = draw(st.integers(1, 3))
    point = st.lists(st.integers(-2, 2), min_size=dim, max_size=dim)
    gallery = draw(st.lists(st.tuples(point, st.integers(0, 3)), min_size=1, max_size=12))
    query = draw(
        st.lists(
            st.tuples(point, st.integers(0, 4), st.integers(-1, len(gallery) - 1)),
            min_size=1,
            max_size=8,
        )
    )
    return (
        torch.tensor([q[0] for q in query], dtype=torch.float32),
        torch.tensor([g[0] for g in gallery], dtype=torch.float32),
        torch.tensor([q[1] for q in query]),
        torch.tensor([g[1] for g in gallery]),
        torch.tensor([q[2] for q in query]),
    )


def neighbours(given: Sides, i: int) -> list[bool]:
    """Whether each gallery item has the label of query i, nearest first, ties against it."""
    query, gallery, query_labels, gallery_labels, index = given
    items = []
    for j in range(len(gallery)):
        if j != int(index[i]):
            distance = sum(
                (float(a) - float(b)) ** 2 for a, b in zip(query[i], gallery[j], strict=True)
            )
            items.append((distance, bool(query_labels[i] == gallery_labels[j])))
    return [same for _, same in sorted(items)]


@settings(max_examples=200, deadline=None)
@given(sides())
def test_recall_is_that_of_sorted_neighbours(given: Sides) -> None:
    hits: dict[int, list[bool]] = {1: [], 2: [], 5: []}
    for i in range(len(given[0])):
        found = neighbours(given, i)
        if any(found):
            for k, list_ in hits.items():
                list_.append(any(found[:k]))
    measured = metrics.recall(ks=(1, 2, 5))(*given)
    for k, list_ in hits.items():
        expected = sum(list_) / len(list_) if list_ else None
        assert measured[f"recall@{k}"] == (expected and pytest.approx(expected))
    counts = metrics.query_counts(given[2], given[3], given[4])
    assert counts == {"queries": len(given[0]), "excluded": len(given[0]) - len(hits[1])}


@settings(max_examples=200, deadline=None)
@given(sides())
def test_map_at_r_is_that_of_sorted_neighbours(given: Sides) -> None:
    scores = []
    for i in range(len(given[0])):
        found = neighbours(given, i)
        most = sum(found)
        if most:
            precisions = [sum(found[: k + 1]) / (k + 1) for k in range(most) if found[k]]
            scores.append(sum(precisions) / most)
    expected = sum(scores) / len(scores) if scores else None
    assert metrics.map_at_r()(*given)["map@r"] == (expected and pytest.approx(expected))


def among(embeddings: Tensor, labels: Tensor) -> Sides:
    return embeddings, embeddings, labels, labels, torch.arange(len(labels))


def random_space(rows: int = 90, classes: int = 12, seed: int = 0) -> Sides:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    centres = torch.randn(classes, 6, generator=generator)
    return among(centres[labels] + torch.randn(rows, 6, generator=generator), labels)


@pytest.mark.parametrize("seed", range(3))
def test_recall_and_map_agree_with_the_library(seed: int) -> None:
    given = random_space(seed=seed)
    theirs = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r"),
        knn_func=CustomKNN(LpDistance(normalize_embeddings=False)),
    ).get_accuracy(given[0], given[2])
    assert metrics.recall()(*given)["recall@1"] == pytest.approx(theirs["precision_at_1"])
    assert metrics.map_at_r()(*given)["map@r"] == pytest.approx(
        theirs["mean_average_precision_at_r"]
    )


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = random_space()
    whole = metrics.recall()(*given) | metrics.map_at_r()(*given)
    monkeypatch.setattr(metrics, "CELLS", 7 * len(given[1]))
    assert metrics.recall()(*given) | metrics.map_at_r()(*given) == pytest.approx(whole)


def test_a_collapsed_model_finds_nothing() -> None:
    given = among(torch.full((40, 16), 0.25), torch.arange(8).repeat_interleave(5))
    assert metrics.recall(ks=(1,))(*given) == {"recall@1": 0.0}
    assert metrics.map_at_r()(*given) == {"map@r": 0.0}


def test_a_duplicate_of_the_query_is_a_neighbour_but_the_query_is_not() -> None:
    z = torch.tensor([[0.0], [0.0], [5.0]])
    assert metrics.recall(ks=(1,))(*among(z, torch.tensor([0, 0, 1])))["recall@1"] == 1.0
    assert metrics.recall(ks=(1,))(*among(z, torch.tensor([0, 1, 0])))["recall@1"] == 0.0


@pytest.mark.parametrize("name", ["recall", "map@r", "nmi", "pi_ratio"])
def test_embeddings_that_are_not_finite_are_refused(name: str) -> None:
    z = torch.ones(4, 2)
    z[1, 0] = math.nan
    with pytest.raises(DmltkError, match="1 of 4 query embeddings"):
        registry.build("metric", name)(*among(z, torch.tensor([0, 0, 1, 1])))


@pytest.mark.parametrize("labels", [[0, 1, 2], [0], []])
def test_what_is_undefined_is_none(labels: list[int]) -> None:
    given = among(torch.eye(3)[: len(labels)], torch.tensor(labels, dtype=torch.long))
    if labels:
        assert metrics.recall(ks=(1,))(*given) == {"recall@1": None}
        assert metrics.map_at_r()(*given) == {"map@r": None}
    density = space.pi_ratio()(*given)
    assert density["pi_intra"] is None and density["pi_ratio"] is None
    assert (density["pi_inter"] is None) == (len(labels) < 2)
    if len(labels) < 2:
        assert space.nmi()(*given) == {"nmi": None}


def test_an_empty_gallery_is_refused() -> None:
    z, none = torch.ones(1, 2), torch.zeros(0, dtype=torch.long)
    with pytest.raises(DmltkError, match="gallery is empty"):
        metrics.recall()(z, torch.zeros(0, 2), torch.tensor([0]), none, torch.tensor([-1]))


def entropy(*columns: np.ndarray) -> float:
    _, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize(("seed", "repeats"), [(0, 1), (5, 3)])
def test_nmi_is_twice_the_information_over_both_entropies(seed: int, repeats: int) -> None:
    given = random_space()
    labels = given[2].numpy()
    values = []
    for i in range(repeats):
        found = space.kmeans(given[0].numpy(), len(np.unique(labels)), seed + i)
        h, k = entropy(labels), entropy(found)
        values.append(2 * (h + k - entropy(labels, found)) / (h + k))
    metric = space.nmi(seed=seed, repeats=repeats)
    assert metric(*given)["nmi"] == pytest.approx(np.mean(values))
    assert (metric.engine, metric.seed, metric.repeats) == ("scikit-learn", seed, repeats)


def test_nmi_of_separate_classes_is_one_and_of_one_point_zero() -> None:
    labels = torch.arange(3).repeat(4)
    assert space.nmi()(*among(torch.eye(3)[labels], labels))["nmi"] == pytest.approx(1)
    assert space.nmi()(*among(torch.ones(12, 3), labels))["nmi"] == 0


def cosine_distance(a: Tensor, b: Tensor) -> float:
    return 1 - float(normalize(a, dim=0) @ normalize(b, dim=0))


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=12),
    seed=st.integers(0, 1000),
    duplicates=st.booleans(),
)
def test_pi_is_that_of_explicit_pairs(labels: list[int], seed: int, duplicates: bool) -> None:
    z = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(seed)).double()
    if duplicates:
        z[1] = z[0]
    members = {c: [i for i, label in enumerate(labels) if label == c] for c in set(labels)}
    intra = [
        np.mean([cosine_distance(z[i], z[j]) for i, j in itertools.permutations(rows, 2)])
        for rows in members.values()
        if len(rows) > 1
    ]
    means = [normalize(z[rows], dim=1).mean(0) for rows in members.values()]
    inter = [cosine_distance(a, b) for a, b in itertools.permutations(means, 2)]
    measured = space.pi_ratio()(*among(z, torch.tensor(labels)))
    expected = {
        "pi_intra": np.mean(intra) if intra else None,
        "pi_inter": np.mean(inter) if inter else None,
        "pi_ratio": np.mean(intra) / np.mean(inter) if intra and inter else None,
    }
    assert measured == {
        k: v if v is None else pytest.approx(v, rel=1e-6, abs=1e-9) for k, v in expected.items()
    }


def test_pi_ratio_is_none_where_the_classes_coincide() -> None:
    measured = space.pi_ratio()(*among(torch.ones(4, 2), torch.tensor([0, 0, 1, 1])))
    assert measured["pi_ratio"] is None
    assert measured["pi_inter"] == pytest.approx(0, abs=1e-12)


def test_metrics_are_built_from_specs() -> None:
    given = random_space()
    assert list(registry.build("metric", "recall:ks=[1,3]")(*given)) == ["recall@1", "recall@3"]
    assert registry.build("metric", "nmi:repeats=2,seed=7").seed == 7


def r_precision_by_loops(z, gallery, y, labels, own):
    scores = []
    for i in range(len(z)):
        items = [j for j in range(len(gallery)) if j != own[i]]
        count = sum(int(labels[j] == y[i]) for j in items)
        if not count:
            continue
        # ties count against the model: another label ranks first
        gaps = [(float((z[i] - gallery[j]).square().sum()), int(labels[j] == y[i])) for j in items]
        scores.append(sum(same for _, same in sorted(gaps)[:count]) / count)
    return sum(scores) / len(scores) if scores else None


@given(st.integers(0, 999), st.integers(2, 14), st.integers(1, 4))
def test_r_precision_is_that_of_loops(seed: int, count: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(0, 4, (count, 3), generator=generator).float()
    y = torch.randint(0, classes, (count,), generator=generator)
    rows = torch.arange(count)
    found = registry.build("metrics", "r_precision")(z, z, y, y, rows)["r_precision"]
    assert found == (
        None
        if (expected := r_precision_by_loops(z, z, y, y, rows)) is None
        else pytest.approx(expected)
    )


def test_class_density_is_that_of_pair_loops() -> None:
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(60, 5, generator=generator)
    y = torch.randint(0, 24, (60,), generator=generator)
    unit = normalize(z.double(), dim=1)
    means = torch.stack([normalize(unit[y == c].sum(0), dim=0) for c in y.unique()])
    pairs = list(itertools.permutations(range(len(means)), 2))
    inter = sum(1 - float(means[i] @ means[j]) for i, j in pairs) / len(pairs)
    ratios = []
    for c in y.unique():
        own = unit[y == c]
        inner = list(itertools.permutations(range(len(own)), 2))
        if inner:
            ratios.append(sum(1 - float(own[i] @ own[j]) for i, j in inner) / len(inner) / inter)
    ratios.sort()
    rows = torch.arange(60)
    found = registry.build("metrics", "class_density")(z, z, y, y, rows)
    assert found["pi_median"] == pytest.approx(np.median(ratios))
    assert found["pi_worst5"] == pytest.approx(ratios[-1])


def test_the_spectrum_of_known_spaces() -> None:
    spectrum = registry.build("metrics", "spectrum")
    even = torch.eye(6).repeat(2, 1)
    y, rows = torch.arange(12), torch.arange(12)
    found = spectrum(even, even, y, y, rows)
    assert found["rho"] == pytest.approx(0, abs=1e-9)
    assert found["anisotropy"] == pytest.approx(1 / 6)
    assert found["mean_cosine"] == pytest.approx(6 * 2 / (12 * 11))
    assert found["collapsed"] == 0
    generator = torch.Generator().manual_seed(0)
    same = torch.ones(12, 6) + 1e-3 * torch.randn(12, 6, generator=generator)
    found = spectrum(same, same, y, y, rows)
    assert found["collapsed"] == 1 and found["anisotropy"] > 0.99 and found["rho"] > 1
    z = torch.randn(12, 6, generator=generator)
    values = np.linalg.svd(normalize(z.double(), dim=1).numpy(), compute_uv=False)
    shares = values / values.sum()
    expected = sum(1 / 6 * math.log(1 / 6 / share) for share in shares)
    assert spectrum(z, z, y, y, rows)["rho"] == pytest.approx(expected)


def test_faiss_is_asked_for_by_name_and_missing_is_said() -> None:
    """PITFALLS 27: the engine is an argument and part of the result."""
    import importlib.util

    if importlib.util.find_spec("faiss") is None:
        with pytest.raises(UserError, match=r"pip install 'dmltk\[faiss\]'"):
            registry.build("metrics", "nmi:engine=faiss")
    assert registry.build("metrics", "nmi:repeats=2").engine == "scikit-learn"
