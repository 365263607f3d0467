"""The memory format that a run chooses itself: by which times, without a trace, and kept to."""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dmltk import models, norms
from dmltk.errors import UserError
from dmltk.folder import RunFolder
from dmltk.training.assemble import assemble
from dmltk.training.config import load
from dmltk.training.layout import choose, seconds
from dmltk.training.repeat import repeat
from dmltk.training.run import run
from torch import Tensor, nn

from .test_run import SMALL, flags, go, same

Measure = Callable[..., float]


def times(*pairs: tuple[float, float]) -> Measure:
    """Passes that take these seconds, off and on in turn; the last pair goes on."""
    told = itertools.chain(pairs, itertools.repeat(pairs[-1]))
    flat = itertools.chain.from_iterable(told)
    return lambda model, images, amp=None: next(flat)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1.0, 0.9)], "on"),
        ([(1.0, 0.96)], "off"),
        ([(1.0, 1.0)], "off"),
        ([(1.0, 2.0)], "off"),
        ([(9.0, 0.0), (1.0, 2.0)], "off"),
        ([(0.0, 9.0), (1.0, 9.0), (1.0, 0.5)], "on"),
        ([(1.5, 0.0), (1.5, 0.0), (1.5, 0.0), (1.5, 2.0)], "off"),
        ([(1.0, math.inf)], "off"),
        ([(math.inf, math.inf)], "off"),
        ([(math.inf, 1.0)], "on"),
    ],
)
def test_the_median_of_warm_passes_chooses_and_a_small_gain_does_not(
    pairs: list[tuple[float, float]], expected: str
) -> None:
    choice = choose(nn.Conv2d(3, 4, 3), torch.rand(2, 3, 8, 8), times(*pairs))
    assert choice.channels_last == expected
    assert f"channels_last=auto takes {expected}" in str(choice) and "\n" not in str(choice)


def test_both_formats_are_measured_on_the_model_itself_and_the_batch() -> None:
    seen = []

    def look(model: nn.Module, images: Tensor) -> float:
        (weight,) = (p for p in model.parameters() if p.ndim == 4)
        seen.append((weight.is_contiguous(memory_format=torch.channels_last), images))
        assert model.training
        return 1.0

    images = torch.rand(2, 3, 8, 8)
    choose(nn.Conv2d(3, 4, 3).eval(), images, look)
    assert [last for last, _ in seen] == [False, True] * 6
    assert all(given is images for _, given in seen)


def test_a_real_measurement_leaves_weights_statistics_gradients_and_randomness() -> None:
    embedder = models.build("smallconv:width=4", dim=8)
    routed = norms.apply("kway", embedder, routes=["main", "stax"])
    for parameter in routed.parameters():
        parameter.grad = torch.ones_like(parameter)
    images = torch.rand(4, 3, 16, 16)
    before = copy.deepcopy(routed.state_dict())
    grads = {name: p.grad.clone() for name, p in routed.named_parameters() if p.grad is not None}
    formats = [p.stride() for p in routed.parameters()]
    modes = [module.training for module in routed.modules()]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = (random.random(), np.random.rand(), torch.rand(3))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    drawn: list[float] = []

    def noisy(model: nn.Module, images: Tensor) -> float:
        drawn.append(random.random() + np.random.rand() + float(torch.rand(())))
        return seconds(model, images)

    assert all(math.isfinite(t) for t in choose(routed, images, noisy).seconds.values())
    assert drawn
    assert (random.random(), np.random.rand()) == expected[:2]
    assert torch.equal(torch.rand(3), expected[2])
    after = routed.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(torch.equal(p.grad, grads[name]) for name, p in routed.named_parameters())
    assert [p.stride() for p in routed.parameters()] == formats
    assert [module.training for module in routed.modules()] == modes


def test_a_format_in_which_the_model_fails_is_not_taken() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, images: Tensor) -> Tensor:
            return self.conv(images).view(len(images), -1)

    choice = choose(Flat(), torch.rand(2, 3, 8, 8), seconds)
    assert choice.channels_last == "off"
    assert math.isinf(choice.seconds["on"]) and math.isfinite(choice.seconds["off"])


def auto(folder: Path, measure: Measure, mode: str = "new", **given: Any) -> list[str]:
    """A run whose passes take injected times; returns what it said of its own choice."""
    said: list[str] = []
    small = {**SMALL, "pipeline": "st", "epochs": "1", "protocol": ("clean",), **given}
    config, out = assemble(
        flags(**{**small, "out": str(folder), "channels_last": "auto"}, resume=mode == "resume")
    )
    work = repeat if config.seeds else run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmltk.training.run.seconds", measure)
        work(config, RunFolder(out, mode), lambda *_: None, lambda _: None, said.append)
    return said


@pytest.mark.parametrize(("measure", "taken"), [(times((1, 2)), "off"), (times((2, 1)), "on")])
def test_auto_saves_what_it_took_and_gives_the_bits_of_that(
    tmp_path: Path, measure: Measure, taken: str
) -> None:
    (said,) = auto(tmp_path / "auto", measure)
    assert f"takes {taken}" in said
    assert load(tmp_path / "auto" / "config.yaml").channels_last == taken
    results = json.loads((tmp_path / "auto" / "results.json").read_text())
    assert results["config"]["channels_last"] == taken
    given = {"pipeline": "st", "epochs": "1", "protocol": ("clean",)}
    go(tmp_path / "asked", **given, channels_last=taken)
    assert same(tmp_path / "auto", tmp_path / "asked")
    config, out = assemble(
        flags(config=str(tmp_path / "auto" / "config.yaml"), out=str(tmp_path / "again"))
    )
    run(config, RunFolder(out), lambda *_: None, lambda _: None, pytest.fail)
    assert same(tmp_path / "auto", tmp_path / "again")


def test_a_resumed_run_keeps_to_what_was_taken(tmp_path: Path) -> None:
    auto(tmp_path / "whole", times((2, 1)), epochs="2")

    class Stop(Exception):
        pass

    def stop(doing: str, done: int, total: int) -> None:
        if doing == "train" and done == 2:
            raise Stop

    cut = tmp_path / "cut"
    given = {**SMALL, "pipeline": "st", "epochs": "2", "protocol": ("clean",), "out": str(cut)}
    config, _ = assemble(flags(**given, channels_last="auto"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr("dmltk.training.run.seconds", times((2, 1)))
        run(config, RunFolder(cut), stop, lambda _: None)
    assert auto(cut, times((1, 2)), "resume", epochs="2") == []
    assert load(cut / "config.yaml").channels_last == "on"
    assert same(tmp_path / "whole", cut)
    with pytest.raises(UserError, match="whose channels_last is 'on', not 'off'"):
        assemble(flags(**given, channels_last="off", resume=True))


def test_several_seeds_keep_to_one_choice(tmp_path: Path) -> None:
    turn = times(*[(2, 1)] * 6, (1, 2))
    assert len(auto(tmp_path / "r", turn, seeds="0,1")) == 1
    for name in (".", "seed-0", "seed-1"):
        assert load(tmp_path / "r" / name / "config.yaml").channels_last == "on"


def test_off_is_the_default_and_measures_nothing(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmltk.training.run.seconds", pytest.fail)
        go(tmp_path / "r", pipeline="st", epochs="0", protocol=("clean",))
    assert load(tmp_path / "r" / "config.yaml").channels_last == "off"
    with pytest.raises(UserError, match="channels_last"):
        assemble(flags(**SMALL, out="x", channels_last="yes"))
