from __future__ import annotations

import math

import pytest
import torch
from dmltk.data.augments import crop, flip, highpass, shift
from dmltk.errors import UserError
from torchvision.transforms.v2 import functional


def images(count: int = 8, size: int = 12) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("augment", [flip(), crop()])
def test_the_generator_alone_decides_and_shape_range_and_input_are_kept(augment) -> None:
    before = images()
    given = before.clone()
    state = torch.get_rng_state()
    first = augment(given, seeded())
    assert torch.equal(first, augment(given, seeded()))
    assert not torch.equal(first, augment(given, seeded(4)))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(given, before)
    assert first.shape == before.shape
    assert first.dtype == before.dtype
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1


@pytest.mark.parametrize("augment", [flip(), crop()])
def test_a_picture_does_not_depend_on_its_batch_mates(augment) -> None:
    whole = augment(images(), seeded())
    part = augment(images()[:3], seeded())
    assert torch.allclose(whole[:3], part, atol=1e-6)


def test_pictures_are_flipped_or_left_one_by_one() -> None:
    given = images(64)
    out = flip()(given, seeded())
    kept = (out == given).flatten(1).all(1)
    turned = (out == given.flip(-1)).flatten(1).all(1)
    assert bool((kept ^ turned).all())
    assert 16 < int(turned.sum()) < 48


def test_flip_probability_zero_and_one_are_exact() -> None:
    assert torch.equal(flip(p=0)(images(), seeded()), images())
    assert torch.equal(flip(p=1)(images(), seeded()), images().flip(-1))


def test_a_crop_of_everything_is_the_picture() -> None:
    out = crop(scale_min=1, scale_max=1, ratio=1)(images(), seeded())
    assert torch.allclose(out, images(), atol=1e-5)


def test_a_crop_is_a_rectangle_of_the_picture_with_the_area_and_ratio_asked_for() -> None:
    size = 64
    ramp = (torch.arange(size) + 0.5) / size
    x, y = ramp.expand(size, size), ramp[:, None].expand(size, size)
    given = torch.stack([x, y, x]).expand(50, 3, size, size)
    out = crop(scale_min=0.2, scale_max=0.5)(given, seeded())
    inner = out[:, :, 8:-8, 8:-8]
    share = (size - 1) / (size - 16 - 1) * size / (size - 1)
    width = (inner[:, 0, 0, -1] - inner[:, 0, 0, 0]) * share
    height = (inner[:, 1, -1, 0] - inner[:, 1, 0, 0]) * share
    assert float((width * height).min()) > 0.19
    assert float((width * height).max()) < 0.51
    assert float((width / height).max()) < 4 / 3 + 0.05
    assert float((width / height).min()) > 3 / 4 - 0.05
    assert float((width * height).std()) > 0.02


def test_a_crop_equals_slicing_and_resizing() -> None:
    size = 32
    given = images(1, size)
    out = crop(scale_min=0.25, scale_max=0.25, ratio=1)(given, seeded())
    draws = torch.rand(1, 4, generator=seeded())
    corner = (size / 2 * draws[0, 2:]).tolist()
    place = torch.arange(size)
    at = [(corner[axis] + (place + 0.5) / 2 - 0.5).clamp(0, size - 1) for axis in (0, 1)]
    for row, column in ((0, 0), (5, 9), (31, 17), (20, 31)):
        x, y = float(at[0][column]), float(at[1][row])
        left, top = min(int(x), size - 2), min(int(y), size - 2)
        u, v = x - left, y - top
        patch = given[0, 0, top : top + 2, left : left + 2]
        value = (patch[0, 0] * (1 - u) + patch[0, 1] * u) * (1 - v)
        value = value + (patch[1, 0] * (1 - u) + patch[1, 1] * u) * v
        assert abs(float(out[0, 0, row, column]) - float(value)) < 1e-4
    assert functional.get_size(out[0]) == [size, size]


def test_a_smallest_scale_above_the_largest_is_refused() -> None:
    with pytest.raises(UserError, match="scale_min"):
        crop(scale_min=0.9, scale_max=0.3)


def test_a_shift_moves_every_picture_whole_and_leaves_black_behind() -> None:
    found = shift(pixels=2)(images(40), seeded())
    moves = set()
    for before, after in zip(images(40), found, strict=True):
        padded = torch.zeros(3, 16, 16)
        padded[:, 2:14, 2:14] = before
        places = [
            (y, x)
            for y in range(5)
            for x in range(5)
            if torch.equal(padded[:, y : y + 12, x : x + 12], after)
        ]
        assert len(places) == 1
        moves.add(places[0])
    assert len(moves) > 10
    assert torch.equal(shift(pixels=0)(images(), seeded()), images())


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 10)])
def test_highpass_keeps_the_waves_that_are_short_enough(height: int, width: int) -> None:
    y, x = torch.arange(height)[:, None] / height, torch.arange(width)[None, :] / width
    for down, across in [(0, 0), (1, 0), (1, 1), (2, 1), (0, 3), (3, 3)]:
        wave = torch.cos(2 * math.pi * (down * y + across * x) + 0.3)[None, None]
        expected = wave if math.hypot(down, across) >= 2 else wave * 0
        found = highpass(radius=2)(wave, seeded())
        assert torch.allclose(found, expected, atol=1e-5), (down, across)


def test_highpass_is_the_shifted_spectrum_with_its_middle_removed() -> None:
    spectrum = torch.fft.fftshift(torch.fft.fft2(images()), dim=(-2, -1))
    for row in range(12):
        for column in range(12):
            if math.hypot(row - 6, column - 6) < 3:
                spectrum[..., row, column] = 0
    expected = torch.fft.ifft2(torch.fft.ifftshift(spectrum, dim=(-2, -1))).real
    assert torch.allclose(highpass(radius=3)(images(), seeded()), expected, atol=1e-5)
    assert expected.mean().abs() < 1e-6
