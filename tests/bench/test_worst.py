"""The worst case against a loop over queries and attacks."""

from __future__ import annotations

import torch
from dmltk.bench.worst import Struck, worst_case
from hypothesis import given
from hypothesis import strategies as st

EPS = (0.1, 0.2, 0.4)
PICTURES = 6


@st.composite
def strikes(draw: st.DrawFn) -> Struck:
    rows = draw(st.lists(st.integers(0, PICTURES - 1), unique=True, max_size=PICTURES))
    hit = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return Struck(
        draw(st.sampled_from(["a", "b"])),
        draw(st.sampled_from(["linf", "none"])),
        draw(st.sampled_from(EPS)),
        torch.tensor(rows, dtype=torch.long),
        torch.tensor(hit, dtype=torch.bool),
    )


masks = st.lists(st.booleans(), min_size=PICTURES, max_size=PICTURES).map(torch.tensor)


@given(st.lists(strikes(), min_size=1, max_size=5), masks, masks)
def test_a_query_stands_where_no_attack_of_its_suite_and_no_smaller_bound_broke_it(
    struck: list[Struck], found: torch.Tensor, counted: torch.Tensor
) -> None:
    queries = torch.arange(PICTURES)
    for entry in worst_case(struck, queries, found, counted):
        standing = []
        for row in range(PICTURES):
            if not counted[row]:
                continue
            stands = bool(found[row])
            for one in struck:
                same = one.norm == entry["norm"] and entry["suite"] in (None, one.suite)
                if same and one.eps <= entry["eps"]:
                    pairs = zip(one.index.tolist(), one.hit.tolist(), strict=True)
                    stands &= all(hit for index, hit in pairs if index == row)
            standing.append(stands)
        expected = sum(standing) / len(standing) if standing else None
        assert entry["metrics"]["recall@1"] == expected
        assert entry["counts"]["queries"] == len(standing)


@given(st.lists(strikes(), min_size=1, max_size=5), masks)
def test_it_never_lies_above_a_single_attack_and_never_rises_with_the_bound(
    struck: list[Struck], found: torch.Tensor
) -> None:
    queries = torch.arange(PICTURES)
    everyone = torch.ones(PICTURES, dtype=torch.bool)
    entries = worst_case(struck, queries, found, everyone)
    by = {(e["suite"], e["norm"], e["eps"]): e["metrics"]["recall@1"] for e in entries}
    for one in struck:
        alone = worst_case([one], queries, found, everyone)[0]["metrics"]["recall@1"]
        assert by[one.suite, one.norm, one.eps] <= alone
    for (suite, norm, eps), value in by.items():
        assert all(
            value <= other
            for (s, n, e), other in by.items()
            if (s, n) == (suite, norm) and e <= eps
        )


def test_all_suites_together_stand_beside_each_where_there_are_several() -> None:
    one = Struck("a", "linf", 0.1, torch.tensor([0]), torch.tensor([False]))
    two = Struck("b", "linf", 0.1, torch.tensor([1]), torch.tensor([False]))
    queries, mask = torch.arange(4), torch.ones(4, dtype=torch.bool)
    found = worst_case([one, two], queries, mask, mask)
    assert {e["suite"]: e["metrics"]["recall@1"] for e in found} == {
        "a": 0.75,
        "b": 0.75,
        None: 0.5,
    }
    assert [e["suite"] for e in worst_case([one], queries, mask, mask)] == ["a"]
