"""What is printed: figures as they are, on wide and narrow lines, without markup from data."""

from __future__ import annotations

import io

import pytest
from dmltk import pipelines
from dmltk.report import tables
from dmltk.report.listing import listing
from dmltk.report.progress import Reporter
from rich.console import Console

METRICS = {"recall@1": 0.5, "recall@2": None, "map@r": 0.125, "nmi": 0.25}
RESULTS = {
    "evaluations": [
        {"name": "clean", "protocol": "clean", "attack": None, "eps": 0.0, "metrics": METRICS},
        {
            "name": "stax",
            "protocol": "query",
            "attack": "stax",
            "eps": 8 / 255,
            "metrics": METRICS,
            "deviation": dict.fromkeys(METRICS, 0.01),
            "attack_stats": {"success": 1 / 3},
        },
    ]
}


def printed(monkeypatch: pytest.MonkeyPatch, width: int, work: object, *args: object) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    monkeypatch.setattr(tables, "console", lambda: console)
    work(*args)  # type: ignore[operator]
    return out.getvalue()


def test_the_table_shows_figures_deviations_and_what_is_undefined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = printed(monkeypatch, 140, tables.print_results, RESULTS)
    header, clean, stax = (line.split() for line in text.strip().splitlines())
    assert header == ["attack", "protocol", "ε", "recall@1", "recall@2", "map@r", "nmi", "success"]
    assert clean == ["clean", "clean", "0", "0.500", "–", "0.125", "0.250"]
    assert stax[:5] == ["stax", "query", "8/255", "0.500", "±0.010"] and stax[-1] == "0.333"


def test_a_narrow_terminal_gets_fewer_whole_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"evaluations": [RESULTS["evaluations"][0]]}
    text = printed(monkeypatch, 60, tables.print_results, results)
    assert "recall@1" in text and "nmi" not in text and "…" not in text
    assert all(len(line) <= 60 for line in text.splitlines())


def test_brackets_in_a_pipeline_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipelines.build("mdprop:mtax=[3]")
    text = printed(monkeypatch, 120, tables.print_pipeline, pipeline, {"main": "main"})
    assert "of: [main, stax, mtax]" in text and "# routes: main → main" in text


def test_budgets_are_told_in_grey_levels() -> None:
    assert [tables.budget(eps) for eps in (0.0, 8 / 255, 0.01)] == ["0", "8/255", "2.55/255"]


def test_progress_in_a_log_is_plain_lines_and_warnings_keep_their_brackets() -> None:
    with Reporter() as report:
        report.console = Console(file=io.StringIO(), width=100)
        report("train", 0, 3)
        report("train", 1, 3)
        report("train", 3, 3)
        report.warn("weights=[a,b] found")
        text = report.console.file.getvalue()
    assert text == "train: 3/3\nwarning: weights=[a,b] found\n"


def test_a_card_gives_each_credit_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    card = {"name": "x", "credits": [{"by": "a [b]"}, {"by": "c"}], "skipped": {}}
    text = printed(monkeypatch, 80, tables.print_card, "x", card)
    lines = [line.split() for line in text.splitlines()]
    assert ["credits", "by:", "a", "[b]"] in lines and ["by:", "c"] in lines
    assert ["skipped", "none"] in lines


def test_a_listing_keeps_its_columns_and_its_words() -> None:
    row = {"kind": "attacks", "version": "1.2", "state": "ok", "distribution": "acme"}
    long = " ".join(f"word{i}" for i in range(20))
    rows = [row | {"name": "x", "summary": long}, row | {"name": "a-long-name", "summary": ""}]
    lines = listing(rows, 90).splitlines()
    assert lines[0].split() == ["kind", "name", "from", "state", "what", "it", "is"]
    place = lines[0].index("what")
    assert " ".join(line[place:].strip() for line in lines[1:-1]) == long
    assert all(len(line) <= 90 for line in lines)
    assert lines[-1].split() == ["attacks", "a-long-name", "acme", "1.2", "ok"]
