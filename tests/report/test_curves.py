"""Robustness curves of a bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dmltk.report.curves import curves, draw
from PIL import Image


def worst(suite: str | None, eps: float, recall: float, norm: str = "linf") -> dict[str, Any]:
    return {"suite": suite, "eps": eps, "norm": norm, "metrics": {"recall@1": recall}}


def results(*entries: dict[str, Any], clean: tuple[float, ...] = (0.8,)) -> dict[str, Any]:
    controls = [
        {"attack": None, "protocol": "query", "route": f"r{i}", "metrics": {"recall@1": value}}
        for i, value in enumerate(clean)
    ]
    return {"evaluations": controls, "worst_case": list(entries)}


def test_a_curve_begins_clean_and_goes_by_bound() -> None:
    found = curves(results(worst("auto", 0.2, 0.1), worst("auto", 0.1, 0.5), worst(None, 0.1, 0.5)))
    assert found == {"auto": [(0.0, 0.8), (0.1, 0.5), (0.2, 0.1)]}


def test_several_suites_have_a_curve_each_and_one_together() -> None:
    entries = [worst("auto", 0.1, 0.5), worst("", 0.1, 0.4), worst(None, 0.1, 0.3)]
    found = curves(results(*entries, worst("auto", 3.0, 0.2, "l2")))
    assert {name: line[-1] for name, line in found.items()} == {
        "auto": (0.1, 0.5),
        "single attacks": (0.1, 0.4),
        "all attacks": (0.1, 0.3),
    }


def test_the_worst_of_several_routes_begins_at_the_worst_of_them() -> None:
    made = results(worst("auto", 0.1, 0.1), clean=(0.8, 0.6))
    assert curves(made)["auto"][0] == (0.0, 0.6)
    assert curves(made, "r0")["auto"][0] == (0.0, 0.8)


def test_without_a_bound_there_is_no_curve() -> None:
    assert curves(results(worst("auto", 1.0, 0.1, "none"))) == {}


@pytest.mark.parametrize("points", [2, 7])
def test_a_picture_is_written(tmp_path: Path, points: int) -> None:
    line = [(i / 255, 1 / (1 + i)) for i in range(points)]
    draw({"MDProp″": line, "ST": line[:2]}, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as made:
        assert made.size == (960, 600) and len(made.convert("L").getcolors()) > 20
