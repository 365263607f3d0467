"""`dmltk show loss X` and `dmltk run --loss X`, for every loss, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dmltk import registry
from dmltk.__main__ import main

from .specs import NAMES, OWN

TINY = ["--dataset", "glyphs:classes=8,per_class=4,size=16", "--model", "smallconv:width=4"]
TINY += ["--batch", "8", "--epochs", "1", "--pipeline", "st", "--protocol", "clean"]
TINY += ["--metric", "recall:ks=[1]"]
FED = {name: name for name in NAMES} | {
    "crossbatchmemory": "crossbatchmemory:contrastive",
    "manifold": "manifold:K=8",
}
REFUSED = {
    "crossbatchmemory": ("crossbatchmemory", "loss 'crossbatchmemory' needs loss"),
    "manifold": ("manifold", "needs a batch of at least K=50 pictures, got 8"),
    "selfsupervised": ("selfsupervised:ntxent", "takes two views of each picture, got 1"),
    "ainfonce": ("ainfonce", "takes two views of each picture, got 1"),
    "vicreg": ("vicreg", "takes two views of each picture, got 1"),
    "multiplelosses": ("multiplelosses", "give the pipeline one term a loss"),
}
for name in ("ainfonce", "selfsupervised", "vicreg"):
    del FED[name]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


@pytest.mark.parametrize("name", [*NAMES, "multiplelosses"])
def test_show_prints_arguments_and_requirements(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, out, _ = call(capsys, "show", "loss", name)
    assert status == 0 and out.startswith(f"{name} (losses, dmltk")
    described = json.loads(call(capsys, "show", "loss", name, "--json")[1])
    for parameter in described["parameters"]:
        assert f"\n{parameter['name']} " in out
    for fact in described["facts"]:
        assert f"\n{fact} " in out
    if name != "multiplelosses":
        needed = {p["name"] for p in described["parameters"] if p["default"] == "required"}
        assert set(filter(None, described["facts"].get("needs", "").split(", "))) == needed


def test_show_lists_what_goes_with_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(call(capsys, "show", "loss", "tripletmargin", "--json")[1])["facts"]
    assert facts["takes"] == "embeddings and labels"
    assert facts["compares by"].startswith("lp, ")
    assert facts["reduces"].startswith("triplets, by avgnonzero, ")
    assert "peranchor" not in facts["reduces"] and "batchhard (triplets)" in facts["miners"]
    assert facts["may stand in"] == "crossbatchmemory, selfsupervised"
    assert facts["memory"] == "grows with the triplets of a batch"
    assert "zeromean" in facts["regularizers"] and "sparsecenters" not in facts["regularizers"]
    facts = json.loads(call(capsys, "show", "loss", "softtriple", "--json")[1])["facts"]
    assert "sparsecenters" in facts["regularizers"]
    facts = json.loads(call(capsys, "show", "loss", "arcface", "--json")[1])["facts"]
    assert facts["needs"] == "num_classes, embedding_size" and facts["trains"] == "W"


def test_every_loss_is_fed_or_refused() -> None:
    assert set(FED) | set(REFUSED) == set(registry.available("losses"))
    assert len(set(FED) | set(REFUSED)) == 38 + len(OWN)


def trains(capsys: pytest.CaptureFixture[str], folder: Path, spec: str) -> None:
    status, out, err = call(capsys, "run", "--loss", spec, *TINY, "--out", str(folder), "--json")
    assert status == 0, err
    results = json.loads(out)
    assert results["config"]["pipeline"]["terms"][0]["loss"] == spec
    assert 0 <= results["evaluations"][0]["metrics"]["recall@1"] <= 1
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1] and lines[0]["no_active_pair"] == [0]


@pytest.mark.parametrize("name", ["tripletmargin", "arcface", "crossbatchmemory"])
def test_a_run_trains_by_a_loss_of_triplets_of_proxies_and_with_a_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    trains(capsys, tmp_path / "r", FED[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", FED)
def test_a_run_trains_by_every_loss_that_a_batch_can_feed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    trains(capsys, tmp_path / "r", FED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_refuses_the_others_with_the_reason_before_it_writes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    spec, reason = REFUSED[name]
    status, out, err = call(capsys, "run", "--loss", spec, *TINY, "--out", str(tmp_path / "r"))
    assert (status, out) == (2, "") and reason in err and err.count("\n") == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("loss", ["selfsupervised:ntxent", "vicreg"])
def test_losses_of_two_views_are_fed_by_two_branches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, loss: str
) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(
        "branches: {one: {augment: flip}, two: {augment: crop}}\n"
        f"terms: [{{loss: '{loss}', of: [one, two], join: args}}]\n"
    )
    words = [str(file) if word == "st" else word for word in TINY]
    status, _, err = call(capsys, "run", *words, "--out", str(tmp_path / "r"))
    assert status == 0, err


def test_a_run_refuses_more_triplets_than_there_is_room_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmltk.losses.room.memory", lambda device: 1000)
    words = ["run", "--loss", "tripletmargin", *TINY, "--out", str(tmp_path / "r")]
    status, _, err = call(capsys, *words)
    assert status == 2 and "would look at" in err and "miner=batchhard" in err
    assert err.count("\n") == 1 and not (tmp_path / "r").exists()
