"""``dmltk analyse`` as it is typed, on a small run with two routes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from dmltk import models, registry
from dmltk.data.split import load
from dmltk.evaluation import neighbours
from dmltk.training.reopen import reopen
from PIL import Image

from ..cli.test_cli import call

DATA = "shapes:per_class=6,test_per_class=8"
ATTACK = "stax:solver=pgd,steps=2"
TINY = ["--dataset", DATA, "--model", "smallconv:width=4", "--batch", "6", "--epochs", "1"]
TINY += ["--protocol", "query", "--eval-attack", ATTACK]


def trained(out: Path, *words: str) -> Path:
    from dmltk.__main__ import main

    with pytest.raises(SystemExit) as stop:
        main(["run", *words, *TINY, "--out", str(out)])
    assert not stop.value.code
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("run") / "r", "--attack", "stax")


def test_a_run_is_read(capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path) -> None:
    out = tmp_path / "a"
    status, said, err = call(capsys, "analyse", str(run), "--out", str(out))
    assert status == 0, err
    for text in ("pixels", "cross", "ring", "among", "trained", "Scale-confounded", "3 of them"):
        assert text in said
    results = json.loads((out / "analysis.json").read_text())
    assert [space["space"] for space in results["spaces"]] == ["pixels", "main", "stax"]
    assert results["classes"]["never_trained"] == ["bar", "ring"]
    assert set(results["plots"]) == {"distances", "tsne_class", "tsne_route"}
    assert results["plots"]["tsne_route"]["groups"] == ["clean through main", "clean through stax"]
    for name in ("distances.png", "tsne.png"):
        with Image.open(out / name) as made:
            assert made.width > 900 and len(made.convert("L").getcolors()) > 20


def test_its_figures_are_those_of_the_opened_model(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    words = ["analyse", str(run), "--json", "--out", str(tmp_path / "a")]
    status, said, err = call(capsys, *words)
    assert status == 0, err
    spaces = {space["space"]: space for space in json.loads(said)["spaces"]}
    test = registry.build("datasets", DATA).test
    images, labels, _ = load(test, range(len(test)))
    routed = reopen(run).eval()
    for name, embed in (("main", models.build(f"run:{run}").eval()), ("stax", routed.at("stax"))):
        with torch.no_grad():
            z = embed(images)
        known = labels < 3
        assert spaces[name]["found"] == int(neighbours.found(z, labels).sum())
        assert spaces[name]["found_known"] == int(neighbours.found(z[known], labels[known]).sum())
        ratios = {test.names[c]: r for c, r in neighbours.tightness(z, labels).items()}
        for kind, figures in spaces[name]["classes"].items():
            assert figures["tightness"] == pytest.approx(ratios[kind], rel=1e-4)


def test_adversaries_are_those_of_the_run(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    words = ["analyse", str(run), "--json", "--out", str(tmp_path / "a"), "--attack", ATTACK]
    status, said, err = call(capsys, *words)
    assert status == 0, err
    found = json.loads(said)
    (judged,) = json.loads((run / "results.json").read_text())["evaluations"]
    clean, main, *others = found["attack"]["entries"]
    assert main["metrics"]["recall@1"] == judged["metrics"]["recall@1"]
    assert found["attack"]["eps"] == judged["eps"]
    assert clean["metrics"]["identity_confusion"] == 0
    assert clean["metrics"]["recall@1"] * 40 == pytest.approx(found["spaces"][1]["found"])
    assert [(e["route"], e["gallery"]) for e in others] == [("stax", "stax"), ("stax", "main")]
    assert len(found["plots"]["tsne_route"]["groups"]) == 3
    status, said, _ = call(capsys, *words[:2], *words[3:], "--limit", "7", "--overwrite")
    assert status == 0 and "7 queries attacked" in said and "identity confusion" in said


def test_routes_of_one_set_are_one_space(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = trained(tmp_path / "r", "--attack", "stax", "--bn", "shared")
    status, said, err = call(capsys, "analyse", str(run))
    assert status == 0 and "main, stax" in said, err
    results = json.loads((run / "analysis" / "analysis.json").read_text())
    assert [space["routes"] for space in results["spaces"]] == [[], ["main", "stax"]]
    assert "tsne_route" not in results["plots"]
    status, _, err = call(capsys, "analyse", str(run))
    assert status == 2 and "--overwrite" in err and err.count("\n") == 1
    assert call(capsys, "analyse", str(run), "--overwrite")[0] == 0
    trained(run, "--attack", "stax", "--overwrite")
    assert not (run / "analysis").exists()


def test_what_cannot_be_read_is_a_sentence(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    cases = (
        ([str(tmp_path)], "finished run"),
        ([str(run), "--attack", "stx"], "stx"),
        ([str(run), "--attack", "stax:steps=x"], "steps"),
        ([str(run), "--out", str(run / "config.yaml")], "is a file"),
    )
    for words, text in cases:
        status, _, err = call(capsys, "analyse", *words)
        assert status == 2 and text in err and err.count("\n") == 1, err
    seeds = tmp_path / "seeds"
    (seeds / "seed-4").mkdir(parents=True)
    (seeds / "seed-4" / "model.safetensors").touch()
    status, _, err = call(capsys, "analyse", str(seeds))
    assert status == 2 and "seed-4" in err


def test_many_classes_are_a_median_and_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    from dmltk.report.analysis import print_analysis

    classes = {
        f"c{i}": {"pictures": 10, "found": i % 11, "found_known": None, "share": 0.5}
        for i in range(20)
    }
    space = {"space": "pixels", "routes": [], "found": 90, "found_known": None}
    space |= {"share": 0.5, "tightness": None, "classes": classes}
    names = {"trained": [], "never_trained": list(classes)}
    shown = {"pictures": 200, "dataset": "x", "nearest": 10, "classes": names}
    print_analysis({**shown, "spaces": [space], "attack": None})
    said = capsys.readouterr().out
    assert "c0 0/10, c11 0/10, c1 1/10, c12 1/10, c2 2/10" in said
    assert "0.450" in said and "90/200" in said and "c13" not in said
