"""Containers of batch norms: they conform, and compute what tensor swaps compute."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import models, norms, pipelines
from dmltk.errors import UserError
from dmltk.folder import RunFolder
from dmltk.testing import parametrize_with_checks, samples
from dmltk.training.config import Config
from dmltk.training.run import run
from safetensors.torch import load_file


@parametrize_with_checks(["norm:split", "norm:split:sets=dual"])
def test_split(part: Any, check: Any) -> None:
    check(part)


def trained(folder: Path, strategy: str) -> dict[str, torch.Tensor]:
    """What a short MDProp run under a strategy leaves."""
    made = pipelines.resolve(attacks=["stax:steps=1", "mtax:targets=2,steps=1"], norms=strategy)
    config = Config(
        pipeline=made,
        dataset="blobs:classes=8,per_class=6,size=16",
        model="timm:resnet10t,dim=8",
        size=16,
        steps=3,
        batch=8,
        protocols=("clean",),
        metrics=("recall",),
    )
    run(config, RunFolder(folder), lambda *_: None, lambda _: None)
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(("ours", "theirs"), [("split", "kway"), ("split:sets=dual", "dual")])
def test_a_run_is_that_of_tensor_swaps_bit_for_bit(tmp_path: Path, ours: str, theirs: str) -> None:
    one, two = trained(tmp_path / "one", ours), trained(tmp_path / "two", theirs)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert models.build(f"run:{tmp_path / 'one'}").embedding_size == 8


def test_copies_have_a_switch_of_their_own() -> None:
    model = norms.apply("split", samples.model(), ["a"]).train()
    images = samples.batch().images
    model(images, route="a")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for route in ("main", "a"):
            assert torch.equal(twin.eval()(images, route=route), model.eval()(images, route=route))
        with model.route("a"):
            assert torch.equal(twin(images), model(images, route="main"))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="no batch norm; use --bn kway:layers=ln"):
        norms.apply("split", samples.model("ln"), ["a"])
    with pytest.raises(UserError, match="has routes already"):
        norms.apply("split", norms.apply("kway", samples.model(), ["a"]), ["b"])
