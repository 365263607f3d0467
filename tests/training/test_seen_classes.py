"""A run on a data set whose test shows the classes that train, from its files to the figures."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from dmltk import data, models
from dmltk.data.split import load

from ..data import official
from .test_run import go


def test_a_run_says_so_validates_and_counts_by_the_same_numbers(tmp_path: Path) -> None:
    made = official.cifar10(tmp_path)
    spec = f"cifar10:{made.folder},val=1/3,size=16"
    folder = tmp_path / "run"
    go(folder, pipeline="st", loss="arcface", dataset=spec, batch="10", epochs="1")
    results = json.loads((folder / "results.json").read_text())
    assert any("10 of 10 test classes were seen" in told for told in results["warnings"])
    test = data.build(spec).test
    images, labels, _ = load(test, range(len(test)))
    with torch.no_grad():
        distances = torch.cdist(*[models.build(f"run:{folder}").eval()(images)] * 2)
    nearest = labels[distances.fill_diagonal_(torch.inf).argmin(1)]
    assert torch.equal(labels, torch.from_numpy(made.test_labels))
    clean = results["evaluations"][0]["metrics"]["recall@1"]
    assert abs(clean - float((nearest == labels).float().mean())) < 1e-6
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert any("validation" in line for line in logged)
