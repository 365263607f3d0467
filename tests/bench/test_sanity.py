"""Checks on figures: what tells robustness from an attack that does not work."""

from __future__ import annotations

from typing import Any

import pytest
from dmltk.bench.sanity import of_evaluations


def entry(
    name: str,
    success: float,
    eps: float = 0.1,
    *,
    access: str = "gradients",
    norm: str = "linf",
    standing: bool = False,
    attacked: int = 100,
) -> dict[str, Any]:
    stats = {"success": success, "attacked": attacked}
    return {
        "name": name,
        "suite": None,
        "protocol": "query",
        "attack": name,
        "eps": eps,
        "norm": norm,
        "access": access,
        "standing": standing,
        "attack_stats": stats,
    }


def verdicts(*entries: dict[str, Any]) -> list[bool]:
    return [check.passed for check in of_evaluations(entries)]


@pytest.mark.parametrize(
    ("small", "large", "attacked", "passed"),
    [
        (0.50, 0.50, 100, True),
        (0.50, 0.46, 100, True),
        (0.50, 0.44, 100, False),
        (0.50, 0.46, 10_000, False),
        (0.844, 0.812, 32, True),
    ],
)
def test_a_larger_bound_may_be_weaker_by_chance_only(
    small: float, large: float, attacked: int, passed: bool
) -> None:
    one, two = (entry("a", s, e, attacked=attacked) for s, e in ((small, 0.1), (large, 0.2)))
    assert verdicts(two, one) == [passed]


@pytest.mark.parametrize(
    ("access", "said"), [("none", "noise is weaker"), ("surrogate", "transfer is weaker")]
)
def test_what_sees_no_gradient_is_weaker_than_the_strongest_that_does(
    access: str, said: str
) -> None:
    white = [entry("a", 0.2), entry("b", 0.6)]
    for success, passed in ((0.6, True), (0.7, False)):
        (check,) = of_evaluations([*white, entry("weak", success, access=access)])
        assert said in check.name and check.passed is passed
        assert f"{success:.3f} against 0.600" in check.seen


def test_bounds_and_norms_are_compared_with_their_own() -> None:
    weak = entry("weak", 0.9, access="none")
    assert verdicts(weak, entry("a", 0.1, 0.2), entry("b", 0.1, norm="l2")) == []
    assert verdicts(weak, entry("a", 0.1)) == [False]


def test_attacks_on_what_still_stands_are_no_curve() -> None:
    assert verdicts(entry("a", 0.9, 0.1, standing=True), entry("a", 0.1, 0.2, standing=True)) == []
    assert verdicts(entry("a", 0.9, access="none", standing=True), entry("b", 0.1)) == []
