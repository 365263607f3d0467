"""Diagnostics of pair training: figures by hand, and the warnings of what the page shows."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import registry
from dmltk.folder import RunFolder
from dmltk.losses.hadsell import Hadsell
from dmltk.pipelines import Pipeline
from dmltk.training.config import from_dict
from dmltk.training.diagnostics import Diagnostics, figures, pairs, stalled
from dmltk.training.run import run
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

EDGE: dict[str, Any] = {
    "dataset": "shapes:test_per_class=2",
    "model": "tanhconv",
    "optimizer": "sgd",
    "momentum": 0,
    "schedule": "constant",
    "warmup": 0,
    "lr": 1.0,
    "weight_decay": 0,
    "batch": 24,
    "per_class": 8,
    "protocols": ["clean"],
    "metrics": ["recall:ks=[1]"],
    "eval_attacks": [],
    "diagnose": True,
}


def trained(folder: Path, pipeline: str, **given: Any) -> tuple[list[dict[str, Any]], list[str]]:
    made = registry.build("pipelines", pipeline)
    assert isinstance(made, Pipeline)
    config = from_dict({**EDGE, **given, "pipeline": made.to_dict()})
    said: list[str] = []
    run(config, RunFolder(folder), lambda *_: None, said.append)
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], said


@given(st.integers(0, 9999), st.integers(2, 9), st.sampled_from([0.5, 1.0]))
def test_figures_are_those_of_the_pairs_counted_by_hand(
    seed: int, count: int, margin: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(3, (count, 2), generator=generator) * 0.4
    labels = torch.randint(2, (count,), generator=generator)
    every = list(itertools.combinations(range(count), 2))
    apart = {pair: math.dist(*(z[i].tolist() for i in pair)) for pair in every}
    unlike = [pair for pair in every if labels[pair[0]] != labels[pair[1]]]
    found = figures(pairs(z, labels, Hadsell(margin)), Hadsell(margin))
    assert found["pairs"] == len(every)
    assert found["unlike_pairs"] == len(unlike)
    assert found["zero_unlike_pairs"] == sum(apart[pair] == 0 for pair in unlike)
    assert found["mean_distance"] == pytest.approx(sum(apart.values()) / len(every), abs=1e-6)
    if unlike:
        past = sum(apart[pair] >= margin for pair in unlike) / len(unlike)
        assert found["past_margin"] == pytest.approx(past)


@pytest.mark.parametrize(("margin", "expected"), [(2.0, 1.3913), (4.0, 5.5652), (0.5, 0.0870)])
def test_a_collapsed_batch_stands_at_its_stall_loss(margin: float, expected: float) -> None:
    z, labels = torch.ones(24, 8), torch.arange(24) // 8
    loss = Hadsell(margin)
    found = figures(pairs(z, labels, loss), loss)
    stall = stalled(found, loss)
    assert stall == pytest.approx(expected, abs=5e-5)
    assert loss(z, labels=labels).item() == pytest.approx(stall)
    fair = Hadsell(margin, per_margin=True)
    assert stalled(found, fair) == pytest.approx(fair(z, labels=labels).item())
    assert stalled(found, nn.Identity()) is None


def test_a_large_margin_at_the_old_rate_collapses_and_is_warned_of(tmp_path: Path) -> None:
    entries, said = trained(tmp_path / "r", "siamese:margin=4", epochs=6, lr=1.0)
    assert any("lr · margin² = 16" in text for text in said)
    assert any("has collapsed" in text and "5.565" in text for text in said)
    assert entries[-1]["loss"] > 5


def test_a_rate_per_margin_trains_and_is_not_warned_of(tmp_path: Path) -> None:
    entries, said = trained(tmp_path / "r", "siamese:margin=4,lr_per_margin=true", epochs=12)
    assert not any("collapse" in text for text in said)
    assert entries[-1]["loss"] < 0.5 * entries[0]["loss"]
    diagnosed = entries[-1]["diagnostics"]["terms.0"]
    assert diagnosed["pairs"] == 7 * 276
    assert diagnosed["unlike_pairs"] == 7 * 192
    header = (tmp_path / "r" / "log.csv").read_text().splitlines()[0].split(",")
    assert "diagnostics.terms.0.mean_distance" in header


def test_pulls_alone_are_warned_of(tmp_path: Path) -> None:
    _, said = trained(
        tmp_path / "r", "siamese", dataset="shapes:train=[disc]", batch=8, epochs=1, lr=0.1
    )
    assert any("sees no unlike pair" in text for text in said)


def test_units_that_are_flat_for_all_pictures_are_counted() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tanh, self.relu = nn.Tanh(), nn.ReLU()

        def forward(self, images: torch.Tensor, route: str = "main") -> torch.Tensor:
            self.tanh(torch.tensor([[9.0, 0.1], [9.0, 9.0]]))
            return self.relu(torch.tensor([[-1.0, -1.0], [-1.0, 2.0]]))

    made = registry.build("pipelines", "siamese")
    config = from_dict({**EDGE, "pipeline": made.to_dict()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Diagnostics(config, [Hadsell()], Half())
    assert found.saturated(torch.ones(2, 1, 4, 4)) == 0.5
    assert found.saturated(torch.ones(0, 1, 4, 4)) is None


def test_diagnostics_change_no_bit_of_the_training(tmp_path: Path) -> None:
    watched, _ = trained(tmp_path / "a", "siamese", epochs=2)
    plain, _ = trained(tmp_path / "b", "siamese", epochs=2, diagnose=False)
    assert [entry["loss"] for entry in watched] == [entry["loss"] for entry in plain]
    assert "diagnostics" not in plain[0]
    one, two = (load_file(tmp_path / run / "model.safetensors") for run in "ab")
    assert all(torch.equal(one[key], two[key]) for key in one)
