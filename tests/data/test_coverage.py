"""Pair counts and expected visits, against loops and against sampling with many seeds."""

from __future__ import annotations

import itertools
import statistics

import pytest
import torch
from dmltk.data import build
from dmltk.data.coverage import Coverage, a_batch, expected, pairs, replay
from dmltk.data.duplicates import contradictions
from dmltk.data.samplers import BalancedBatches, PairBatches
from dmltk.data.split import Memory, Split
from hypothesis import given, settings
from hypothesis import strategies as st


def labelled(*sizes: int) -> torch.Tensor:
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def by_loops(sampler, epochs: int) -> set[tuple[int, int]]:
    """The pairs that batches visit, as a set."""
    found = set()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for rows in sampler:
            if isinstance(sampler, PairBatches):
                met = zip(rows[::2], rows[1::2], strict=True)
            else:
                met = itertools.combinations(rows, 2)
            found |= {(min(p), max(p)) for p in met if p[0] != p[1]}
    return found


@pytest.mark.parametrize(
    ("sizes", "like", "unlike"),
    [
        ((60, 60, 60), 5_310, 10_800),
        ((1, 1, 2), 1, 5),
        ((1000,), 499_500, 0),
        ((1_000_000,), 499_999_500_000, 0),
        ((1,) * 1000 + (999_000,), 498_999_999_000 - 499_500 + 1_000 - 500, None),
    ],
)
def test_pairs_are_counted_exactly(sizes: tuple[int, ...], like: int, unlike: int | None) -> None:
    whole = sum(sizes)
    found = pairs(BalancedBatches(labelled(*sizes), batch=2, seed=0))
    assert found["all"] == whole * (whole - 1) // 2 == found["like"] + found["unlike"]
    assert found["like"] == sum(n * (n - 1) // 2 for n in sizes)
    if unlike is not None:
        assert (found["like"], found["unlike"]) == (like, unlike)


def test_the_figures_of_the_siamese_page() -> None:
    shapes = build("shapes").train
    sampler = BalancedBatches(shapes.labels, batch=24, per_class=8, seed=0)
    assert pairs(sampler) == {"all": 16_110, "like": 5_310, "unlike": 10_800}
    assert a_batch(sampler) == {"all": 276, "like": 84, "unlike": 192}
    assert 40 * len(sampler) * 276 == 77_280
    by_hand = 5310 * (1 - (1 - 7 * 8 * 7 / (60 * 59)) ** 40)
    by_hand += 10800 * (1 - (1 - 7 * (8 / 60) ** 2) ** 40)
    assert expected(sampler, 40) == pytest.approx(by_hand, rel=1e-12)
    assert round(expected(sampler, 40)) == 16_008
    counts = []
    for seed in range(6):
        counts.append(
            replay(BalancedBatches(shapes.labels, batch=24, per_class=8, seed=seed), 40).count
        )
    assert statistics.mean(counts) == pytest.approx(16_008, abs=12)
    assert all(15_970 < count < 16_050 for count in counts)


CASES = {
    "classes": ({"batch": 4}, (6, 6, 7), 3, 0.0),
    "the smallest class comes round": ({"batch": 4}, (5, 6, 7), 3, 0.03),
    "one epoch": ({"batch": 6, "per_class": 3}, (6, 6, 7, 8), 1, 0.0),
    "class twice in a batch": ({"batch": 8}, (16, 16, 16), 2, 0.0),
    "small classes come round": ({"batch": 4}, (2, 3, 9, 20), 2, 0.06),
    "single pictures": ({"batch": 4}, (1, 1, 6, 8), 2, 0.06),
    "one of each": ({"batch": 3, "per_class": 1}, (5, 5, 5, 5), 2, 0.0),
    "with replacement": ({"batch": 6, "per_class": 3, "with_replacement": True}, (1, 4, 9), 2, 0.0),
    "one class": ({"batch": 4}, (9,), 2, 0.0),
    "pairs": ({"batch": 4}, (1, 2, 5, 6), 3, 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_expectation_is_the_mean_over_seeds(case: str) -> None:
    """Within four standard errors, and the tolerance of what is no exact expectation."""
    options, sizes, epochs, tolerance = CASES[case]
    kind = PairBatches if case == "pairs" else BalancedBatches
    counts = [
        len(by_loops(kind(labelled(*sizes), seed=seed, **options), epochs)) for seed in range(400)
    ]
    error = statistics.stdev(counts) / len(counts) ** 0.5
    told = expected(kind(labelled(*sizes), seed=0, **options), epochs)
    assert abs(statistics.mean(counts) - told) < 4 * error + tolerance * told + 1e-9


@pytest.mark.parametrize("case", [case for case in CASES if case != "pairs"])
def test_sorts_of_a_batch_are_those_that_come(case: str) -> None:
    options, sizes, _, _ = CASES[case]
    labels = labelled(*sizes)
    sampler = BalancedBatches(labels, seed=0, **options)
    seen = []
    for epoch in range(200):
        sampler.set_epoch(epoch)
        for rows in sampler:
            met = [bool(labels[a] == labels[b]) for a, b in itertools.combinations(rows, 2)]
            seen.append(sum(met))
    found = a_batch(sampler)
    assert found["all"] == len(met) == found["like"] + found["unlike"]
    error = statistics.stdev(seen) / len(seen) ** 0.5
    assert abs(statistics.mean(seen) - found["like"]) <= 4 * error + 1e-9


@given(st.lists(st.integers(0, 4), min_size=2, max_size=20), st.integers(1, 4), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_replay_counts_what_loops_count(labels, epochs, again) -> None:
    sampler = BalancedBatches(labels, batch=4, seed=2, with_replacement=again)
    found = replay(sampler, epochs)
    met = by_loops(sampler, epochs)
    assert found.count == len(met)
    assert found.share == pytest.approx(len(met) / (len(labels) * (len(labels) - 1) / 2))
    assert 0 <= expected(sampler, epochs) <= pairs(sampler)["all"] * (1 + 1e-12)


@given(st.integers(2, 30))
def test_every_pair_has_a_place_of_its_own(pictures: int) -> None:
    coverage = Coverage(pictures)
    every = list(itertools.combinations(range(pictures), 2))
    for seen, (a, b) in enumerate(every, 1):
        coverage.add(torch.tensor([b, a]), torch.tensor([0]), torch.tensor([1]))
        assert coverage.count == seen
    assert coverage.share == 1


def test_listed_pairs_are_all_visited_in_an_epoch() -> None:
    listed = torch.tensor([[0, 1], [1, 0], [1, 2], [3, 0], [3, 2]])
    sampler = PairBatches([0, 0, 0, 1], listed, batch=4, seed=0)
    assert pairs(sampler) == {"all": 4, "like": 2, "unlike": 2}
    assert expected(sampler, 1) == replay(sampler, 1).count == 4
    assert expected(sampler, 0) == replay(sampler, 0).count == 0
    assert a_batch(sampler) == pytest.approx({"all": 2, "like": 1.2, "unlike": 0.8})


def split_of(values: list[int], labels: list[int], pairs: torch.Tensor | None = None) -> Split:
    images = torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 4, 4)
    names = [f"c{label}" for label in sorted(set(labels))]
    return Split(Memory(images), torch.tensor(labels), names, pairs=pairs)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=30))
def test_equal_pictures_under_two_labels_are_found(items) -> None:
    names = sorted({label for _, label in items})
    values, labels = [v for v, _ in items], [names.index(label) for _, label in items]
    wanted = []
    for value in dict.fromkeys(values):
        rows = [row for row, other in enumerate(values) if other == value]
        wanted += [rows] if len({labels[row] for row in rows}) > 1 else []
    assert contradictions(split_of(values, labels)) == wanted


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    split = split_of([1, 2, 3, 1, 2, 3, 4], [0, 0, 1, 1, 0, 1, 1])
    assert contradictions(split) == [[0, 3]]
    monkeypatch.setattr("dmltk.data.duplicates.CHUNK", 2)
    assert contradictions(split) == [[0, 3]]


def test_of_listed_pairs_only_unlike_ones_contradict() -> None:
    values, labels = [1, 1, 2, 2], [0, 1, 0, 1]
    listed = torch.tensor([[0, 2], [2, 3]])
    assert contradictions(split_of(values, labels)) == [[0, 1], [2, 3]]
    assert contradictions(split_of(values, labels, listed)) == [[2, 3]]
