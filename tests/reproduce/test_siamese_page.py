"""The page's claims that do not hang on weights, for one seed; the whole page is slow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dmltk.__main__ import main
from dmltk.folder import RunFolder
from dmltk.reproduce.siamese import KINDS, Page
from dmltk.reproduce.siamese_page import rows
from dmltk.reproduce.table import Row, claim


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = RunFolder(tmp_path_factory.mktemp("page") / "out")
    folder.begin()
    return Page(folder, [1], "edge", lambda *_: None)


def test_pairs_find_fewer_of_an_unseen_kind_than_a_classifier_does(page: Page) -> None:
    (pairs,), (named,) = page.siamese(), page.classifier()
    assert pairs.counts["bar"] < named.counts["bar"]
    assert pairs.counts["ring"] < named.counts["ring"]
    known = sum(pairs.counts_known.values()), sum(named.counts_known.values())
    assert min(known) > 150
    assert known[0] >= known[1] - 0.12 * 180
    assert pairs.counts["cross"] < pairs.counts_known["cross"]


def test_most_pushes_die_and_the_loss_falls(page: Page) -> None:
    (pairs,) = page.siamese()
    assert pairs.last["past_margin"] > 0.5
    assert pairs.log[-1]["loss"] < pairs.log[0]["loss"] / 5
    assert len(pairs.log) == 40


def test_pulls_alone_let_all_positions_meet(page: Page) -> None:
    (pulled,), (pairs,) = page.pulled(), page.siamese()
    assert pulled.last["mean_distance"] < 0.1 < pairs.last["mean_distance"]
    assert pulled.log[-1]["loss"] < pairs.log[-1]["loss"]


def test_pixels_are_counted_by_hand(page: Page) -> None:
    pixels = page.pixels()
    place = KINDS.index("ring")
    count = 0
    for row in (pixels.labels == place).nonzero().flatten().tolist():
        apart = (pixels.positions - pixels.positions[row]).norm(dim=1)
        apart[row] = float("inf")
        count += int(pixels.labels[apart.argmin()] == place)
    assert pixels.counts["ring"] == count
    assert pixels.counts_known["ring"] == 0


def test_a_claim_is_checked_for_each_seed() -> None:
    row = claim("x", "below 2", [1, 3], lambda value: value < 2)
    assert row == Row("x", "below 2", ("1", "3"), "claim", (True, False))
    assert row.holds == "1 of 2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-page"], "unknown table 'no-page'"),
        (["siamese-page", "--preset", "calm"], "unknown preset 'calm'"),
        (["siamese-page", "--seeds", "a"], "whole numbers"),
        (["siamese-page", "--seeds", ","], "needs a seed"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *words, "--out", str(tmp_path / "r")])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_the_whole_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r")
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "siamese-page", "--seeds", "1", "--out", out, "--json"])
    assert not stop.value.code
    results = json.loads(capsys.readouterr().out)
    assert {row["sort"] for row in results["rows"]} == {"exact", "claim", "weights"}
    claims = [row for row in results["rows"] if row["sort"] == "claim"]
    assert sum(all(row["verdict"]) for row in claims) >= len(claims) - 2
    folder = RunFolder(out, "resume")
    again = rows(Page(folder, [1], "edge", lambda *_: None))
    assert [row.to_dict() for row in again] == [
        {**row, "ours": tuple(row["ours"]), "verdict": tuple(row["verdict"])}
        for row in results["rows"]
    ]
