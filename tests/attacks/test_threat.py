from __future__ import annotations

import pytest
import torch
from dmltk import UserError
from dmltk.attacks import Threat, normalized
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(deadline=None)
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


@settings(deadline=None)
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


@pytest.mark.parametrize("eps", [-0.1, float("inf"), float("nan")])
def test_a_euclidean_eps_is_any_number_but_these(eps):
    assert Threat(100.0, "l2").largest == 100
    with pytest.raises(UserError, match="outside"):
        Threat(eps, "l2")


DTYPES = st.sampled_from([torch.float32, torch.float64])


@settings(deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 10), st.floats(1e-3, 10), DTYPES)
def test_a_euclidean_change_is_shortened_to_the_ball_and_then_cut_by_the_box(
    seed, eps, size, dtype
):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(3, 2, 4, 3, dtype=dtype, generator=generator)
    adv = images + size * torch.randn(images.shape, dtype=dtype, generator=generator)
    slow = []
    for a, x in zip(adv, images, strict=True):
        change = (a - x).flatten().tolist()
        length = sum(c * c for c in change) ** 0.5
        shorter = [c * min(1.0, eps / length) for c in change]
        moved = [min(max(v + c, 0), 1) for v, c in zip(x.flatten().tolist(), shorter, strict=True)]
        slow.append(torch.tensor(moved, dtype=dtype).view_as(x))
    threat = Threat(eps, "l2")
    found = threat.project(adv, images)
    assert torch.allclose(found, torch.stack(slow), rtol=0, atol=1e-5)
    assert threat.allows(found, images)
    assert ((found - images).flatten(1).norm(dim=1) <= eps * (1 + 1e-5) + 1e-6).all()


def test_euclidean_random_pictures_are_spread_evenly_over_the_ball(gen):
    """Evenly: the d-th power of the radius is uniform, and so is the direction."""
    images = torch.full((20000, 1, 1, 3), 0.5, dtype=torch.float64)
    change = (Threat(0.3, "l2").random(images, 0.2, gen()) - images).flatten(1)
    shares = torch.histc((change.norm(dim=1) / 0.2) ** 3, 10, 0, 1) / len(change)
    assert (shares - 0.1).abs().max() < 0.01
    unit = change / change.norm(dim=1, keepdim=True)
    assert unit.mean(0).abs().max() < 0.02
    shares = torch.histc(unit[:, 0], 10, -1, 1) / len(unit)  # Archimedes: even along an axis
    assert (shares - 0.1).abs().max() < 0.01


@pytest.mark.parametrize("size", [1e-35, 1e-20, 1.0, 1e20, 1e38])
def test_the_steepest_euclidean_step_is_the_direction_of_the_gradient(gen, size):
    """PITFALLS 7: no NaN, and no standing still, where squares under- or overflow."""
    direction = torch.nn.functional.normalize(torch.rand(3, 12, generator=gen()) - 0.5)
    step = Threat(0.5, "l2").steepest((direction * size).view(3, 3, 2, 2))
    assert torch.allclose(step.flatten(1), direction, atol=1e-3)
    zero = Threat(0.5, "l2").steepest(torch.zeros(1, 3, 2, 2))
    assert zero.abs().max() == 0


def test_with_a_bound_per_channel_each_channel_has_its_own_ball(gen):
    images = torch.full((2000, 3, 2, 2), 0.5, dtype=torch.float64)
    bounds = (0.01, 0.2, 0.0)
    threat = Threat([0.01, 0.2, 0])
    assert threat == Threat(bounds) and threat.largest == 0.2
    moved = threat.random(images, 0.1, gen()) - images
    far = threat.project(torch.ones_like(images), images) - images
    step = threat.steepest(torch.full_like(images, -3.0))
    for c, eps in enumerate(bounds):
        assert moved[:, c].abs().max().item() == pytest.approx(eps / 2, rel=0.01)
        assert far[:, c].unique().tolist() == pytest.approx([eps])
        assert step[:, c].unique().tolist() == pytest.approx([-eps / 0.2])
    assert threat.allows(images + far, images) and not threat.allows(images + 0.02, images)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_a_bound_per_channel_fits_the_number_of_channels(gen, channels):
    images = torch.rand(2, channels, 4, 4, generator=gen())
    threat = Threat((0.1, 0.1, 0.1))
    for use in (lambda: threat.project(images, images), lambda: threat.steepest(images),
                lambda: threat.random(images, 0.1, gen())):  # fmt: skip
        with pytest.raises(UserError, match=f"3 numbers and the pictures have {channels}"):
            use()


@pytest.mark.parametrize(("eps", "norm"), [([0.1, 0.2], "l2"), ([0.1], "none"), ([], "linf")])
def test_a_list_of_bounds_goes_with_linf(eps, norm):
    with pytest.raises(UserError, match="norm=linf"):
        Threat(eps, norm)


def test_one_bound_for_all_channels_equals_the_same_bound_for_each(gen):
    images, adv = torch.rand(2, 2, 3, 4, 4, generator=gen())
    one, each = Threat(0.1), Threat((0.1, 0.1, 0.1))
    assert torch.equal(one.project(adv, images), each.project(adv, images))
    assert torch.equal(one.random(images, 0.05, gen()), each.random(images, 0.05, gen()))
    assert torch.equal(one.steepest(adv - 0.5), each.steepest(adv - 0.5))


def test_a_bound_on_normalized_pictures_is_one_per_channel(gen):
    """PITFALLS 5: eps applied to normalized tensors; (x' - m) / s - (x - m) / s is at most eps."""
    std = [0.229, 0.224, 0.225]
    bounds = normalized(0.1, std)
    assert bounds == pytest.approx((0.0229, 0.0224, 0.0225))
    images = torch.full((1, 3, 4, 4), 0.5, dtype=torch.float64)
    far = Threat(bounds).project(torch.ones_like(images), images)
    deviation = torch.tensor(std, dtype=torch.float64).view(1, 3, 1, 1)
    assert torch.allclose(far / deviation - images / deviation, torch.tensor(0.1).double())


def test_without_a_norm_only_the_box_is_left(gen):
    images = torch.rand(2, 3, 4, 4, generator=gen())
    threat = Threat(norm="none")
    adv = torch.randn(2, 3, 4, 4, generator=gen())
    assert torch.equal(threat.project(adv, images), (images + (adv - images)).clamp(0, 1))
    assert threat.largest == 1 and threat.allows(1 - images, images)
    assert not threat.allows(images + 1, images)
    assert Threat(0, "none").largest == 0


@settings(deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1e-4, 1 / 255, 8 / 255, 0.0137, 0.5, 1.0]),
    st.sampled_from(["linf", "none"]),
    DTYPES,
    st.booleans(),
)
def test_eight_bits_are_the_nearest_levels_inside_the_ball(seed, eps, norm, dtype, grid):
    """PITFALLS 16: the attack dies when saved as 8 bit."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(2, 2, 3, 2, dtype=dtype, generator=generator)
    images = (images * 255).round() / 255 if grid else images
    threat = Threat(eps, norm, quantize=8)
    adv = threat.random(images, eps, generator)
    found = threat.quantized(adv, images)
    for a, x, q in zip(*(t.flatten().tolist() for t in (adv, images, found)), strict=True):
        bound = 1 if norm == "none" else eps
        levels = [(abs(k / 255 - x), k / 255) for k in range(256)]
        inside = [level for away, level in levels if away <= bound]
        nearly = [level for away, level in levels if away <= bound + 1e-7]  # a rounding outside
        assert any(abs(q - level) < 1e-7 for level in nearly) or (q == x and not inside)
        assert all(abs(q - a) <= abs(level - a) + 2e-7 for level in inside)
    assert threat.allows(found, images)


@settings(deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1e-3, 0.05, 0.3, 5.0]), DTYPES, st.booleans())
def test_eight_bits_never_lengthen_a_euclidean_change(seed, eps, dtype, grid):
    """PITFALLS 16."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(3, 2, 4, 2, dtype=dtype, generator=generator)
    images = (images * 255).round() / 255 if grid else images
    threat = Threat(eps, "l2", quantize=8)
    adv = threat.random(images, eps, generator)
    found = threat.quantized(adv, images)
    before, after = ((t - images).flatten(1).norm(dim=1) for t in (adv, found))
    assert (after <= before + 1e-6).all() and threat.allows(found, images)
    levels = found.double() * 255
    assert ((levels - levels.round()).abs().lt(1e-4) | (found == images)).all()


def test_without_quantize_pictures_stay_the_very_same(gen):
    images = torch.rand(2, 3, 4, 4, generator=gen())
    assert Threat().quantized(images, images) is images


def test_pictures_outside_the_ball_or_the_box_are_not_allowed():
    images = torch.full((1, 3, 2, 2), 0.5)
    assert Threat(0.1).allows(images + 0.1, images)
    assert not Threat(0.1).allows(images + 0.11, images)
    assert not Threat(1.0).allows(images + 0.51, images)
    assert not Threat(1.0).allows(images - 0.51, images)
