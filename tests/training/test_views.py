"""Contrastive pipelines in training: what is climbed, what is kept, what is gone on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import registry
from dmltk.__main__ import main
from dmltk.batch import Batch
from dmltk.data.split import load
from dmltk.folder import RunFolder
from dmltk.pipelines import Pipeline
from dmltk.training import checkpoint
from dmltk.training.config import Config, from_dict
from dmltk.training.run import prepare, run
from dmltk.training.step import Step
from safetensors.torch import load_file

TINY: dict[str, Any] = {
    "dataset": "blobs:classes=8,per_class=6,size=16",
    "model": "smallconv:width=4",
    "batch": 8,
    "steps": 4,
    "warmup": 0,
    "protocols": ["clean"],
    "metrics": ["recall:ks=[1]"],
    "eval_attacks": [],
}
SMALL = "dim=8,hidden=8"
STEEP = "attack='pgd:steps=3,select=last'"
PLAIN, IP, HN = "", ",alpha=.2", ",beta=1,tau=.1"
WEIGHTS = {"plain": PLAIN, "ip": IP, "hn": HN, "ip+hn": IP + HN}


def config(pipeline: str, **given: Any) -> Config:
    made = registry.build("pipelines", pipeline)
    assert isinstance(made, Pipeline)
    return from_dict({**TINY, **given, "pipeline": made.to_dict()})


def step_of(pipeline: str) -> tuple[Step, dict[str, Batch]]:
    """A prepared step and the pictures of all its branches for one batch."""
    ready = prepare(config(pipeline))
    batch = ready.trainer.batch(load(ready.dataset.train, range(8)), 0, 0)
    step = ready.trainer.step
    ready.model.train()
    return step, step.pictures(batch, 0, 0)


def test_every_adversary_is_worse_than_the_picture_it_starts_from() -> None:
    step, views = step_of(f"coreacl:{SMALL},{STEEP}")
    clean, adversary = (Batch(views["t1"].images, None), views["adv"])
    batch = prepare(config(f"coreacl:{SMALL}")).trainer.batch(
        load(registry.build("datasets", TINY["dataset"]).train, range(8)), 0, 0
    )
    assert (adversary.images - batch.images).abs().max() <= 8 / 255 + 1e-6
    assert not torch.equal(clean.images, batch.images)
    loss = registry.build("losses", "ainfonce")
    model = step.model.eval()
    values = []
    with torch.no_grad():
        others = [model(views[name].images, route="main", heads=("proj",)) for name in ("t1", "t2")]
        for images in (batch.images, adversary.images):
            own = model(images, route="adv", heads=("proj",))
            values.append(loss(*(made["proj"] for made in (*others, own))).item())
    assert values[1] > values[0]


def test_an_attack_fills_no_queue() -> None:
    queued = "ainfonce:queue=16"
    made = registry.build("pipelines", f"coreacl:{SMALL},loss='{queued}'").to_dict()
    made["branches"]["adv"]["objective"][0]["loss"] = queued
    ready = prepare(from_dict({**TINY, "pipeline": made}))
    batch = ready.trainer.batch(load(ready.dataset.train, range(8)), 0, 0)
    views = ready.trainer.step.pictures(batch, 0, 0)
    (climbed,) = ready.trainer.parts.objectives["adv"]  # type: ignore[misc]
    assert int(climbed.held) == 0
    ready.trainer.step.gradients(views, 0)
    assert int(ready.trainer.parts.losses[0].held) == 8  # type: ignore[arg-type]


def test_acl_attacks_both_views_at_once_and_cuts_them_apart() -> None:
    _, views = step_of(f"acl:{SMALL}")
    assert len(views["adv"].images) == 16
    assert torch.equal(views["adv"].images, torch.cat([views["adv1"].images, views["adv2"].images]))
    for name, origin in (("adv1", "t1"), ("adv2", "t2")):
        gap = (views[name].images - views[origin].images).abs().amax((1, 2, 3))
        assert gap.max() <= 8 / 255 + 1e-6
        assert gap.min() > 0
        assert torch.equal(views[name].index, views[origin].index)  # type: ignore[arg-type]


def test_advcl_guesses_by_clusters_on_a_route_of_its_own() -> None:
    step, views = step_of(f"advcl:clusters=[2,3],{SMALL},{STEEP}")
    assert sorted(step.model.routes) == ["adv", "adv_ce", "main"]
    assert views["hfc"].images.mean().abs() < 1e-5
    assert not torch.equal(views["adv"].images, views["adv_ce"].images)
    assert set(views["adv_ce"].extra) == {"clusters2", "clusters3"}
    values = step.gradients(views, 0)
    assert list(values) == ["terms.0", "terms.1", "terms.2"]
    assert all(value > 0 for value in values.values())
    assert values["terms.1"] < 0.5 * torch.tensor(2.0).log() * 3


def test_dynacl_weakens_its_views_and_embeds_the_second_by_averaged_weights() -> None:
    made = registry.build("pipelines", f"dynacl:steps=4,every=2,{SMALL}")
    assert [made.branches["t1"].strength_at(step) for step in range(5)] == [1, 1, 0.5, 0.5, 0]
    totals = [[term.weight_at(step) for term in made.terms] for step in (0, 4)]
    assert totals[0] == pytest.approx([1 / 2, 1 / 2])
    assert totals[1] == pytest.approx([1 / 6, 5 / 6])
    assert made.branches["t2"].ema
    assert made.branches["adv2"].ema
    step, views = step_of(f"dynacl:steps=4,{SMALL}")
    assert step.ema is not None
    step.gradients(views, 0)
    assert all(parameter.grad is None for parameter in step.ema.parameters())


def gone_on(pipeline: str, folder: Path, cut: int) -> None:
    """A run that is interrupted at a step and resumed has the bits of one that was not."""
    run(config(pipeline), RunFolder(folder / "whole"), lambda *_: None, lambda _: None)

    def progress(doing: str, done: int, total: int) -> None:
        if doing == "train" and done == cut:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config(pipeline), RunFolder(folder / "cut"), progress, lambda _: None)
    run(config(pipeline), RunFolder(folder / "cut", "resume"), lambda *_: None, lambda _: None)
    one, two = (load_file(folder / name / checkpoint.NAME) for name in ("whole", "cut"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    "pipeline",
    [
        f"advcl:clusters=[2],{SMALL},loss='ainfonce:alpha=.2,alpha_warm=2,queue=16'",
        f"dynacl:steps=4,every=1,{SMALL}",
    ],
)
def test_an_interrupted_run_goes_on_to_the_same_bits(pipeline: str, tmp_path: Path) -> None:
    gone_on(pipeline, tmp_path, cut=3)


def test_an_adaptive_weight_is_saved_with_the_run(tmp_path: Path) -> None:
    made = config(f"coreacl:{SMALL},loss='ainfonce:alpha=.2,alpha_warm=3,queue=10'")
    run(made, RunFolder(tmp_path / "r"), lambda *_: None, lambda _: None)
    saved = load_file(tmp_path / "r" / checkpoint.NAME)
    assert int(saved["losses.0.calls"]) == 3
    lines = (tmp_path / "r" / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["alpha"] == [pytest.approx(0.2)]
    assert 0 < float(saved["losses.0.distance"]) < 2
    assert int(saved["losses.0.held"]) == 4 * 8
    assert torch.allclose(saved["losses.0.past"].norm(dim=1), torch.ones(10))


@pytest.mark.slow
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("method", ["rocl", "advcl"])
def test_methods_run_with_each_weighting_go_on_and_are_judged(
    method: str, weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = "form=rocl" if method == "rocl" else "form=advcl"
    more = "clusters=[2,10]," if method == "advcl" else ""
    pipeline = f"{method}:{more}{SMALL},loss='ainfonce:{form}{WEIGHTS[weights]}'"
    gone_on(pipeline, tmp_path, cut=2)
    bench = ["bench", "--model", f"run:{tmp_path / 'cut'}", "--dataset", TINY["dataset"]]
    with pytest.raises(SystemExit) as stop:
        main([*bench, "--suite", "quick", "--limit", "4", "--out", str(tmp_path / "b"), "--json"])
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["worst_case"]
