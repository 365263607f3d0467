"""``dmltk bench`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from dmltk import models
from dmltk.training.reopen import reopen

from .test_cli import TINY, call

BENCH = ["--dataset", "glyphs:classes=8,per_class=6,size=16", "--attack", "misrank:steps=3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three routes."""
    from dmltk.__main__ import main

    out = tmp_path_factory.mktemp("trained") / "r"
    words = ["run", "--attack", "stax", "--attack", "mtax:targets=2", *TINY]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--protocol", "clean", "--out", str(out)])
    assert not stop.value.code
    return out


def test_a_run_is_opened_with_its_routes(trained: Path) -> None:
    routed, main = reopen(trained), models.build(f"run:{trained}")
    images = torch.rand(3, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(routed.eval().merge("main")(images), main.eval()(images))
        other = routed.merge("stax")(images)
    assert not torch.equal(other, main(images))


def test_the_worst_route_is_never_above_any(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    words = ["bench", "--model", f"run:{trained}", *BENCH, "--eps", "0,.02", "--route", "worst"]
    status, out, err = call(capsys, *words, "--json", "--out", str(tmp_path / "b"))
    assert status == 0, err
    found = {e["route"]: e["metrics"]["recall@1"] for e in json.loads(out)["worst_case"]}
    assert set(found) == {"main", "stax", "mtax", "worst"}
    assert found["worst"] <= min(found.values())
    status, out, _ = call(capsys, *words, "--out", str(tmp_path / "b"), "--resume")
    assert status == 0 and "finished already" in out


def test_the_tables_show_the_control_the_worst_case_and_the_checks(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    words = ["bench", "--model", f"run:{trained}", *BENCH, "--eps", "0,.02"]
    status, out, _ = call(capsys, *words, "--out", str(tmp_path / "b"))
    assert status == 0
    assert "single attacks" in out and "bound 1 leaves no query standing" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "smallconv", "--route", "stax"], "--route goes with a run's model"),
        (["--model", "run:{}", "--route", "staks"], "did you mean 'stax'"),
        (["--model", "run:{}", "--overwrite", "--resume"], "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str],
    trained: Path,
    tmp_path: Path,
    words: list[str],
    message: str,
) -> None:
    given = [word.format(trained) for word in words]
    status, _, err = call(capsys, "bench", *given, *BENCH, "--out", str(tmp_path / "b"))
    assert status == 2 and message in err
    assert not (tmp_path / "b").exists()
