"""``dmltk plan``: the figures of a training before it, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from dmltk.__main__ import main
from dmltk.data.samplers import BalancedBatches
from dmltk.data.split import Dataset, Memory, Split
from dmltk.pipelines import build
from dmltk.registry import register
from dmltk.training.config import Config
from dmltk.training.run import prepare

PAGE = ("--dataset", "shapes", "--batch", "24", "--per-class", "8", "--epochs", "40")


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["plan", *words])
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


def dataset(labels: list[int], values: list[int]) -> Dataset:
    images = torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 8, 8)
    split = Split(Memory(images), torch.tensor(labels), [f"c{i}" for i in sorted(set(labels))])
    return Dataset(split, None, split, {"name": "made"})


def test_the_figures_of_the_siamese_page(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, *PAGE)
    assert status == 0
    for text in (
        "180 of 3 classes",
        "16,110 = 5,310 like + 10,800 unlike",
        "276 = 84 like + 192 unlike",
        "77,280 in 40 epochs",
        "16,008 of 16,110",
        "280",
        "6,720",
    ):
        assert text in out


def test_json_says_the_same_and_hangs_on_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (json.loads(call(capsys, *PAGE, "--json", "--seed", s)[1]) for s in "01")
    assert one["pairs"] == {"all": 16_110, "like": 5_310, "unlike": 10_800}
    assert one["expected"]["pairs"] == pytest.approx(16_008, abs=0.5)
    assert one["visited"]["share"] == pytest.approx(one["visited"]["pairs"] / 16_110)
    assert one["visited"] != two["visited"] and one["expected"] == two["expected"]
    assert (one["steps"], one["batches_an_epoch"], one["pictures_passed"]) == (280, 7, 6720)


def test_what_is_planned_is_what_a_run_does(capsys: pytest.CaptureFixture[str]) -> None:
    """The very batches of a run, its pairs in a set."""
    words = ("--dataset", "shapes:per_class=7", "--batch", "6", "--epochs", "2", "--seed", "5")
    found = json.loads(call(capsys, *words, "--json")[1])
    config = Config(
        pipeline=build("siamese"),
        dataset="shapes:per_class=7",
        model="tanhconv",
        batch=6,
        epochs=2,
        seed=5,
    )
    trainer = prepare(config).trainer
    assert trainer.total == found["steps"]
    assert isinstance(trainer.batches, BalancedBatches)
    met, passed = set(), 0
    for epoch in range(2):
        trainer.batches.set_epoch(epoch)
        for rows in trainer.batches:
            passed += len(rows)
            met |= {frozenset((a, b)) for a in rows for b in rows if a != b}
    assert found["visited"]["pairs"] == len(met)
    assert found["pictures_passed"] == passed


def test_drawn_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--dataset", "shapes", "--sampler", "pairs", "--batch", "24", "--epochs", "40")
    found = json.loads(call(capsys, *words, "--json")[1])
    assert found["pairs_a_batch"] == {"all": 12, "like": 6, "unlike": 6}
    assert found["distances"] == 40 * 7 * 12
    assert found["visited"]["pairs"] == pytest.approx(found["expected"]["pairs"], rel=0.03)
    assert "per_class" not in found


def test_listed_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from torchvision.utils import save_image

    for number, name in enumerate("abcd"):
        save_image(torch.full((3, 16, 16), number / 5), tmp_path / f"{name}.png")
    lines = ["a,b,same", "a.png,b.png,1", "b.png,a.png,1", "c.png,a.png,0"]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    spec = f"pairs:'{tmp_path}/p.csv',test=shapes,size=16"
    words = ("--dataset", spec, "--sampler", "pairs", "--batch", "4", "--epochs", "3")
    status, out, _ = call(capsys, *words)
    assert status == 0
    assert "2 = 1 like + 1 unlike, of 3 lines" in out and "c.png" in out
    found = json.loads(call(capsys, *words, "--json")[1])
    assert (found["distances"], found["pictures_passed"], found["steps"]) == (9, 18, 6)
    assert found["visited"] == found["expected"] == {"pairs": 2, "share": 1}
    status, _, err = call(capsys, "--dataset", spec)
    assert status == 2 and "--sampler pairs" in err and err.count("\n") == 1


def test_single_pictures_and_contradictory_labels(capsys: pytest.CaptureFixture[str]) -> None:
    register("datasets", "made", lambda: dataset([0, 0, 1, 1, 2], [1, 2, 3, 1, 1]))
    words = ("--dataset", "made", "--batch", "4")
    found = json.loads(call(capsys, *words, "--json")[1])
    assert found["single_picture_classes"] == ["c2"]
    assert found["contradictory_labels"] == [{"rows": [0, 3, 4], "classes": ["c0", "c1", "c2"]}]
    status, out, _ = call(capsys, *words)
    assert status == 0
    assert "1 (no like pair): c2" in out and "1 groups of equal pictures: rows 0+3+4" in out


def test_many_pictures_are_not_replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmltk.training.plan.EXACT", 16_109)
    status, out, _ = call(capsys, *PAGE)
    assert status == 0 and "not counted" in out and "16,008 of 16,110" in out
    assert json.loads(call(capsys, *PAGE, "--json")[1])["visited"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["--sampler", "pair"],
        ["--sampler", "pairs", "--batch", "7"],
        ["--batch", "7"],
        ["--dataset", "shaped"],
        ["--epochs", "-1"],
    ],
    ids=" ".join,
)
def test_a_users_error_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status, out, err = call(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("dmltk: ") and err.count("\n") == 1
