from __future__ import annotations

import math

import dmltk
import pytest
import torch
from dmltk.errors import UserError


def test_it_is_the_network_that_is_described() -> None:
    model = dmltk.build("models", "tanhconv:dim=8,unit=false,seed=1")
    weights = [tuple(p.shape) for p in model.backbone.parameters() if p.ndim > 1]
    assert weights == [(8, 1, 3, 3), (8, 8, 3, 3), (16, 128)]
    assert model(torch.rand(2, 3, 16, 16)).shape == (2, 8)
    hidden = dmltk.build("models", "tanhconv:unit=false,seed=1")(torch.rand(2, 1, 16, 16))
    assert hidden.shape == (2, 16)
    assert hidden.abs().max() <= 1


def test_three_like_channels_are_one_picture() -> None:
    model = dmltk.build("models", "tanhconv:dim=8,unit=false,seed=1")
    grey = torch.rand(2, 1, 16, 16)
    assert torch.allclose(model(grey), model(grey.expand(-1, 3, -1, -1)), atol=1e-6)


@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_first_weights_of_layers_and_heads_are_as_wide_as_the_gain_says(gain: float) -> None:
    model = dmltk.build("models", f"tanhconv:gain={gain},dim=400,seed=0")
    for weight in (model.backbone[8].weight, model.head("embed")[0].weight):
        expected = gain / math.sqrt(weight.shape[1])
        assert weight.std().item() == pytest.approx(expected, rel=0.1)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_below_the_last_layer_two_heads_start_alike() -> None:
    one, two = (dmltk.build("models", f"tanhconv:dim={dim},seed=3") for dim in (8, 3))
    for mine, other in zip(one.backbone.parameters(), two.backbone.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_a_size_that_two_maxima_cannot_halve_is_refused() -> None:
    with pytest.raises(UserError, match="multiple of 4"):
        dmltk.build("models", "tanhconv:size=18")
