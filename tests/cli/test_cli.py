"""The commands as a person types them: what they print, where, and with which status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dmltk.__main__ import main
from dmltk.cli import cli
from dmltk.pipelines import build, from_yaml

TINY = ["--dataset", "glyphs:classes=8,per_class=4,size=16", "--model", "smallconv:width=4"]
TINY += ["--batch", "8", "--epochs", "1", "--eval-attack", "stax:solver=pgd,steps=2"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


def test_run_prints_the_method_the_sets_and_a_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["run", "--attack", "stax", "--attack", "mtax:targets=2", "--bn", "kway", *TINY]
    status, out, _ = call(capsys, *words, "--out", str(tmp_path / "r"))
    assert status == 0
    assert "# routes: main → main, stax → stax, mtax → mtax" in out
    assert "recall@1" in out and "8/255" in out and "query" in out
    status, out, _ = call(capsys, *words, "--out", str(tmp_path / "r"), "--resume")
    assert status == 0 and "is finished already" in out
    status, out, _ = call(capsys, *words, "--out", str(tmp_path / "r"), "--resume", "--json")
    assert json.loads(out) == json.loads((tmp_path / "r" / "results.json").read_text())
    status, _, err = call(capsys, *words, "--out", str(tmp_path / "r"))
    assert status == 2 and "--overwrite" in err and err.count("\n") == 1


def test_overwrite_runs_again_and_leaves_foreign_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["run", "--pipeline", "st", *TINY, "--protocol", "clean", "--out", str(tmp_path / "r")]
    call(capsys, *words)
    (tmp_path / "r" / "notes.txt").write_text("mine")
    (tmp_path / "r" / ".checkpoint.safetensors.123").write_text("torn")
    status, _, _ = call(capsys, *words, "--overwrite", "--seed", "7")
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    assert status == 0 and results["config"]["seed"] == 7
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "r" / ".checkpoint.safetensors.123").exists()


def test_the_clean_protocol_alone_attacks_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["run", "--pipeline", "st", *TINY, "--protocol", "dmltk/clean", "--json"]
    status, out, err = call(capsys, *words, "--out", str(tmp_path / "r"))
    assert status == 0 and "stax" not in err
    assert [e["protocol"] for e in json.loads(out)["evaluations"]] == ["dmltk/clean"]


@pytest.mark.parametrize(
    ("norms", "sets"),
    [
        ("shared", "main → main, stax → main, mtax → main"),
        ("dual", "main → main, stax → stax, mtax → stax"),
        ("kway", "main → main, stax → stax, mtax → mtax"),
    ],
)
def test_bn_says_what_routes_share(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, norms: str, sets: str
) -> None:
    words = ["run", "--attack", "stax", "--attack", "mtax:targets=2", "--bn", norms, *TINY]
    status, out, _ = call(capsys, *words, "--protocol", "clean", "--out", str(tmp_path / "r"))
    assert status == 0 and f"# routes: {sets}" in out


def test_run_as_the_mission_writes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["run", "--attack", "mtax", "--bn", "kway", "--loss", "multisimilarity"]
    tiny = [word.replace("classes=8", "classes=20") for word in TINY]
    status, out, _ = call(capsys, *words, *tiny, "--json", "--out", str(tmp_path / "r"))
    assert status == 0
    results = json.loads(out)
    assert results["config"]["pipeline"]["branches"]["mtax"]["attack"] == "mtax"
    assert results == json.loads((tmp_path / "r" / "results.json").read_text())


def test_results_hold_no_nan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Single-picture classes leave no query: figures are null, not NaN."""
    words = ["run", "--pipeline", "st", *TINY, "--protocol", "clean", "--out", str(tmp_path / "r")]
    words[words.index("--dataset") + 1] = "glyphs:classes=16,per_class=1,size=16"
    status, _, _ = call(capsys, *words)
    assert status == 0
    results = json.loads((tmp_path / "r" / "results.json").read_text(), parse_constant=pytest.fail)
    assert results["evaluations"][0]["metrics"]["recall@1"] is None


def test_list_shows_every_kind_and_one(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "list", "attack", "--json")
    rows = json.loads(out)
    assert status == 0 and {"stax", "mtax", "pgd", "bim", "fgsm", "mim"} <= {
        r["name"] for r in rows
    }
    assert all(
        (row["summary"] and row["state"] == "ok") or row["state"] == "loaded" for row in rows
    )
    assert call(capsys, "list")[1].count("multisimilarity") == 1
    assert call(capsys, "list", "attaks")[0] == 2


def test_show_prints_merged_arguments_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "show", "attack", "mtax")
    assert status == 0 and "MDProp" in out
    for argument in ("targets", "power", "steps", "eps", "restarts"):
        assert f"\n{argument} " in out
    out = call(capsys, "show", "attack", "stax:solver=pgd")[1]
    assert "gain" in out and "select" in out


def test_show_pipeline_prints_yaml_that_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "show", "pipeline", "mdprop:mtax=[3,5]")
    assert status == 0 and "mtax2 → mtax2" in out
    text = out[out.index("norms:") :]
    assert from_yaml(text) == build("mdprop:mtax=[3,5]")
    assert "the sum of 4 values" in out


def test_data_info_shows_the_card_and_draws(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet = tmp_path / "sheet.png"
    words = ("data", "info", "glyphs:classes=8,per_class=3", "--sheet", str(sheet))
    status, out, _ = call(capsys, *words)
    assert status == 0 and "sha256" in out
    assert sheet.read_bytes().startswith(b"\x89PNG")
    assert json.loads(call(capsys, "data", "info", "glyphs:classes=8", "--json")[1])["name"]


def test_data_get_knows_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, "data", "get", "emojo")
    assert status == 2 and "did you mean 'emoji'" in err


def test_doctor_tells_versions_extras_and_plug_ins(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "doctor", "--json")
    found = json.loads(out)
    assert status == 0 and found["broken plug-ins"] == "none"
    assert found["packages"]["torch"] != "missing"
    assert call(capsys, "doctor")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--nope"],
        ["rn"],
        ["run", "--attack", "stx"],
        ["run", "--attack", "stax:stps=3"],
        ["run", "--eps", "2"],
        ["run", "--epochs", "-3"],
        ["run", "--dataset", "folder:/no/such"],
        ["run", "--dataset", "glyphs:classes=1"],
        ["run", "--bn", "kway", "--model", "timm:test_vit"],
        ["run", "--overwrite", "--resume"],
        ["show", "attack"],
        ["show", "attack", "stx"],
        ["data", "info", "glyphs:clases=3"],
    ],
    ids=" ".join,
)
def test_a_users_error_is_one_line_with_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("dmltk: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_truncated_picture_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from PIL import Image

    photos = tmp_path / "photos"
    for name in "abcd":
        (photos / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (20, 20), (number, 9, 9)).save(photos / name / f"{number}.jpg")
    broken = photos / "c" / "1.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    words = ["run", "--dataset", f"folder:{photos}", "--out", str(tmp_path / "r")]
    status, _, err = call(capsys, *words)
    assert status == 2 and "1.jpg" in err and not (tmp_path / "r").exists()


def test_a_traceback_only_with_debug(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dmltk", "run", "--attack", "stx"]
    plain = subprocess.run(command, capture_output=True, text=True)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True)
    assert "Traceback" not in plain.stderr and plain.returncode == 2
    assert "Traceback" in debug.stderr


def test_every_command_has_help_with_an_example() -> None:
    def walk(command: object, words: list[str]) -> None:
        done = CliRunner().invoke(cli, [*words, "--help"])
        assert done.exit_code == 0 and "dmltk " in done.output.split("Usage:")[1][20:]
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, [*words, name])

    walk(cli, [])
