"""A run on queries and a gallery of its own, from a list on the disk to the figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from dmltk import data, models
from dmltk.__main__ import main
from dmltk.data.split import Split
from dmltk.errors import UserError
from dmltk.training.config import load
from dmltk.training.run import judge, prepare
from torchvision.utils import save_image

from .test_run import go

GIVEN = {"pipeline": "st", "batch": "12", "epochs": "1", "metric": ("recall:ks=[1]", "map@r")}
PROTOCOLS = ("clean", "query", "gallery", "all")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes train; of five others a picture or two ask, and one class is not there."""
    root = tmp_path_factory.mktemp("shop")
    glyphs = data.build("glyphs:classes=12,per_class=6,size=16")
    rows = [("path", "label", "split")]
    for split, part in ((glyphs.train, "train"), (glyphs.test, "")):
        for image, label, index in split:
            file = f"{part or 'test'}-{index}.png"
            save_image(image / 255, root / file)
            asks = label == 5 or index % 6 < 1 + label % 2
            rows.append((file, split.names[label], part or ("query" if asks else "gallery")))
    with (root / "shop.csv").open("w", newline="") as opened:
        csv.writer(opened).writerows(rows)
    return root / "shop.csv"


@pytest.fixture(scope="module")
def finished(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "shop"
    go(folder, **GIVEN, dataset=f"csv:'{shop}',size=16", protocol=PROTOCOLS)
    return folder


def first_hits_by_loops(z: torch.Tensor, held: torch.Tensor, test: Split) -> dict[int, bool]:
    """For each query with its class in the gallery: whether the nearest picture there is of it."""
    gallery = [row for row in range(len(test)) if row not in test.queries]
    found = {}
    for row in test.queries:
        items = [
            (float((z[row] - held[other]).square().sum()), test.labels[other] == test.labels[row])
            for other in gallery
        ]
        if any(same for _, same in items):
            found[row] = bool(min(items)[1])
    return found


def test_every_protocol_gives_the_recall_of_loops_over_queries_and_gallery(
    shop: Path, finished: Path
) -> None:
    results = json.loads((finished / "results.json").read_text())
    ready = prepare(load(finished / "config.yaml"))
    test = ready.dataset.test
    assert len(test) == 36 and len(test.queries) == 6 + 7
    embedder = models.build(f"run:'{finished}'").eval()
    with torch.no_grad():
        z = embedder(test.pictures.read(range(36)).float() / 255)
    judging = judge(ready, lambda *_: None)
    moved = judging.attack(embedder, ready.trials[0], judging.embed(embedder))[0].embeddings
    before = first_hits_by_loops(z, z, test)
    assert [e["protocol"] for e in results["evaluations"]] == list(PROTOCOLS)
    for entry, asked, held in zip(
        results["evaluations"], (z, moved, z, moved), (z, z, moved, moved), strict=True
    ):
        after = first_hits_by_loops(asked, held, test)
        assert entry["metrics"]["recall@1"] == pytest.approx(sum(after.values()) / len(after))
        assert entry["counts"] == {"queries": 13, "excluded": 6}
        if entry["attack"] is not None:
            lost = sum(hit and not after[row] for row, hit in before.items())
            assert entry["attack_stats"]["success"] == pytest.approx(lost / sum(before.values()))


def test_queries_alone_are_attacked_where_no_protocol_asks_for_more(
    shop: Path, finished: Path, tmp_path: Path
) -> None:
    given = {**GIVEN, "dataset": f"csv:'{shop}',size=16"}
    alone = go(tmp_path / "alone", **given, protocol=("query",))
    whole = json.loads((finished / "results.json").read_text())
    stats = [e["attack_stats"] for e in (alone["evaluations"][0], whole["evaluations"][1])]
    assert [s["backwards"] for s in stats] == [2 * 13, 2 * 36]
    assert alone["evaluations"][0]["metrics"] == whole["evaluations"][1]["metrics"]
    few = go(tmp_path / "few", **given, limit="5")
    assert few["evaluations"][1]["counts"]["queries"] == 5
    with pytest.raises(UserError, match="attacks all 36 test pictures and cannot go with --limit"):
        go(tmp_path / "never", **given, limit="12", protocol=("gallery",))


def test_data_info_tells_queries_and_gallery(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["data", "info", f"csv:'{shop}',size=16"])
    text = capsys.readouterr().out
    assert "retrieval" in text
    assert "queries: 13, gallery: 23, queries_without_match: 6" in text


def test_test_classes_that_were_trained_on_are_told_once_at_the_start(
    shop: Path, tmp_path: Path
) -> None:
    rows = [line.split(",") for line in shop.read_text().splitlines()]
    trained = next(label for _, label, part in rows if part == "train")
    moved = next(row for row in rows if row[2] == "gallery")
    moved[1] = trained
    mixed = shop.parent / "mixed.csv"
    mixed.write_text("".join(f"{','.join(row)}\n" for row in rows))
    said = "1 of 7 test classes were seen in training: recall is not of new classes"
    given = {**GIVEN, "protocol": ("clean",)}
    results = go(tmp_path / "seen", **given, dataset=f"csv:'{mixed}',size=16")
    assert results["warnings"].count(said) == 1
    clean = go(tmp_path / "new", **given, dataset=f"csv:'{shop}',size=16")
    assert not any("seen in training" in text for text in clean["warnings"])
