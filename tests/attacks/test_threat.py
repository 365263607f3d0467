from __future__ import annotations

import pytest
import torch
from dmltk import UserError
from dmltk.attacks import Threat
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 2**31), st.floats(0, 1), st.sampled_from([torch.float32, torch.float64]))
def test_projection_is_the_nearest_allowed_picture(seed, eps, dtype):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(2, 3, 4, 5, dtype=dtype, generator=generator)
    adv = torch.randn(2, 3, 4, 5, dtype=dtype, generator=generator)
    slow = torch.tensor(
        [
            min(max(a, x - eps, 0.0), x + eps, 1.0)
            for a, x in zip(adv.flatten().tolist(), images.flatten().tolist(), strict=True)
        ],
        dtype=dtype,
    ).view_as(images)
    found = Threat(eps).project(adv, images)
    assert torch.allclose(found, slow, rtol=0, atol=2 * torch.finfo(dtype).eps)
    assert Threat(eps).allows(found, images)


@given(st.integers(0, 2**31), st.floats(0.001, 1))
def test_random_pictures_stay_in_the_smaller_ball_and_the_box(seed, radius):
    images = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    found = Threat(1.0).random(images, radius, torch.Generator().manual_seed(seed))
    assert (found - images).abs().max() <= radius + 1e-7
    assert found.min() >= 0 and found.max() <= 1


def test_random_pictures_are_spread_evenly_over_the_ball(gen):
    images = torch.full((4, 3, 32, 32), 0.5)
    change = Threat(0.1).random(images, 0.1, gen()) - images
    shares = torch.histc(change, 10, -0.1, 0.1) / change.numel()
    assert (shares - 0.1).abs().max() < 0.02


def test_a_random_start_never_leaves_eps_however_large_its_radius(gen):
    images = torch.rand(2, 3, 4, 4, generator=gen())
    assert (Threat(0.01).random(images, 1.0, gen()) - images).abs().max() <= 0.01 + 1e-7


def test_the_steepest_step_is_the_sign_and_zero_where_the_gradient_is_zero():
    grad = torch.tensor([-2.0, 0.0, 1e-30]).view(1, 3, 1, 1)
    assert Threat().steepest(grad).flatten().tolist() == [-1, 0, 1]


@pytest.mark.parametrize("eps", [-0.1, 1.5, 8.0, float("nan")])
def test_eps_outside_its_range_is_refused(eps):
    with pytest.raises(UserError, match="pixel units"):
        Threat(eps)


def test_pictures_outside_the_ball_or_the_box_are_not_allowed():
    images = torch.full((1, 3, 2, 2), 0.5)
    assert Threat(0.1).allows(images + 0.1, images)
    assert not Threat(0.1).allows(images + 0.11, images)
    assert not Threat(1.0).allows(images + 0.51, images)
    assert not Threat(1.0).allows(images - 0.51, images)
