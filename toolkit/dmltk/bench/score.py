"""The empirical robustness score of a bench's ranking attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmltk.evaluation.ers import Ers

__all__ = ["NAMES", "scores"]

NAMES = ("ca-up", "ca-down", "qa-up", "qa-down", "tma", "flee", "ltm", "gtm", "gtt")


def scores(evaluations: Sequence[Mapping[str, Any]], suites: Sequence[str]) -> list[dict[str, Any]]:
    """The score at every bound of suites that ask for it, beside what it must not be read without.

    Args:
        evaluations: entries of ``results.json`` of one route.
        suites: specs of the suites with `score: ers`.

    Returns:
        One entry a suite and bound: `terms`, `score`, `clipped`, `control` (the same without an
        attack), clean recall@1 of the queries and whether the model has collapsed.
    """
    control = next(e for e in evaluations if e["attack"] is None and e["protocol"] == "query")
    clean = next(e for e in evaluations if e["attack"] is None and e["protocol"] == "clean")
    found = []
    for suite in suites:
        own = [e for e in evaluations if e["suite"] == suite and e["protocol"] == "query"]
        for eps in sorted({e["eps"] for e in own}):
            by = {e["name"]: e for e in own if e["eps"] == eps}
            if not all(name in by for name in NAMES):
                continue
            before = {name: by[name]["attack_stats"]["before"] for name in NAMES}
            after = {name: by[name]["attack_stats"] for name in NAMES}
            recalls = control["metrics"]["recall@1"], by["flee"]["metrics"]["recall@1"]
            if None in recalls:
                continue
            entry = {"suite": suite, "eps": eps, **_ers(after, recalls[1]).plain()}
            entry["control"] = _ers(before, recalls[0]).plain()
            entry["recall@1"] = recalls[0]
            entry["collapsed"] = clean["metrics"].get("collapsed")
            found.append(entry)
    return found


def _ers(figures: Mapping[str, Mapping[str, float]], recall: float) -> Ers:
    return Ers(
        ca_up=figures["ca-up"]["prank"],
        ca_down=figures["ca-down"]["prank"],
        qa_up=figures["qa-up"]["prank"],
        qa_down=figures["qa-down"]["prank"],
        cosine=figures["tma"]["cosine"],
        shift=figures["flee"]["shift"],
        recall_flee=recall,
        recall_ltm=figures["ltm"]["recall"],
        recall_gtm=figures["gtm"]["recall"],
        retained=figures["gtt"]["retained"],
    )
