"""A pipeline, a goal and a norm strategy in one file, without any packaging."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from dmltk.__main__ import main

FILE = '''
from dataclasses import dataclass

from dmltk import norms
from dmltk.pipelines import Branch, Pipeline, Term


@dataclass(frozen=True)
class Far:
    """Away from the batch's middle.

    Args:
        power: of the distance.
    """

    power: float = 2.0

    def prepare(self, probe, batch, generator):
        middle = probe.embed(batch.images).mean(0)
        return lambda z: -(z - middle).norm(dim=1) ** self.power


class Halves:
    """Main alone, all other routes together, in every normaliser."""

    def apply(self, embedder, routes):
        return norms.apply("dual:layers=all", embedder, routes)


def pipeline(*, weight: float = 0.5) -> Pipeline:
    """Clean and far pictures."""
    far = Branch(attack="bim:steps=1,goal=stax", route="far")
    terms = (Term("contrastive", ("main",)), Term("contrastive", ("far",), weight=weight))
    return Pipeline(norms="kway", branches={"main": Branch(), "far": far}, terms=terms)
'''
SMALL = (
    "--dataset blobs:classes=8,per_class=6,size=16 --model smallconv:width=4,dim=8"
    " --steps 2 --batch 8 --metric recall --protocol query"
)


@pytest.mark.parametrize(
    "asked",
    [
        "--pipeline own.ideas:pipeline,weight=.3 --bn own.ideas:Halves"
        " --eval-attack pgd:steps=2,goal=own.ideas:Far(power=1)",
        "--attack bim:steps=1,goal=own.ideas:Far --bn own.ideas:Halves --eval-attack stax",
    ],
)
def test_ideas_in_one_file_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "ideas.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for name in ("own", "own.ideas"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as left:
        main(["run", *SMALL.split(), *asked.split(), "--out", "r"])
    assert not left.value.code
    found = json.loads((tmp_path / "r" / "results.json").read_text())
    assert found["config"]["pipeline"]["norms"] == "own.ideas:Halves"
    assert len(found["evaluations"]) == 1
    for name in ("own", "own.ideas"):
        sys.modules.pop(name, None)
