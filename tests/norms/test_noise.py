"""Noise on new sets: scipy's distributions are the twin."""

from __future__ import annotations

import math
from typing import Any

import pytest
import scipy.stats
import torch
from dmltk import norms, seeds
from dmltk.errors import UserError
from dmltk.norms.noise import DISTRIBUTIONS, Noise

TWINS = {
    "normal": scipy.stats.norm(),
    "uniform": scipy.stats.uniform(-math.sqrt(3), 2 * math.sqrt(3)),
    "laplace": scipy.stats.laplace(scale=1 / math.sqrt(2)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_scipys_of_that_name_with_the_given_deviation(name: str) -> None:
    drawn = Noise.read(f"{name}:.25").draw(torch.Size([20_000]), seeds.generator(0))
    assert TWINS[name].std() == pytest.approx(1)
    assert scipy.stats.kstest(drawn.double().numpy() / 0.25, TWINS[name].cdf).pvalue > 0.01
    assert drawn.std().item() == pytest.approx(0.25, rel=0.03)


def test_a_number_is_the_deviation_of_a_normal() -> None:
    assert Noise.read(0.5) == Noise.read(".5") == Noise.read("normal:.5") == Noise(0.5, "normal")


def test_each_route_has_its_own_distribution(embed: Any) -> None:
    spec = "kway:noise=[a=laplace:.1,b=uniform:.2]"
    model = norms.apply(spec, embed("timm:resnet18"), ["a", "b"])
    state = model.state_dict()
    for route, name, deviation in (("a", "laplace", 0.1), ("b", "uniform", 0.2)):
        moved = torch.cat(
            [
                state[f"sets.{route}.{slot.key}"] - state[slot.key]
                for slot in model.slots
                if slot.trained
            ]
        )
        scaled = moved.double().numpy() / deviation
        assert scipy.stats.kstest(scaled, TWINS[name].cdf).pvalue > 0.001


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ("unifrom:.1", "unknown distribution 'unifrom'.*did you mean 'uniform'"),
        ("uniform:", "write a deviation"),
        ("uniform:-1", "write a deviation"),
        ("uniform:inf", "write a deviation"),
        ("uniform:wide", "write a deviation"),
        ("-1", "write a deviation"),
        ("wide", "write a deviation"),
        ("uniform:scale=1", "write a deviation"),
    ],
)
def test_a_malformed_noise_is_refused(embed: Any, noise: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        norms.apply("kway", embed("smallconv"), ["a"], noise=noise)
