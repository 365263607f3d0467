from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch
from dmltk.data import build, info
from dmltk.data.blobs import WAVES, blobs, draw, frame, inside, species
from dmltk.data.split import load


def seeded(seed: int = 2) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_same_arguments_give_the_same_pictures_and_another_seed_others() -> None:
    first, again, other = (blobs(classes=4, per_class=3, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(load(first.train, range(6))[0], load(again.train, range(6))[0])
    assert first.card == again.card
    assert first.card["sha256"] != other.card["sha256"]


def test_global_random_state_is_neither_used_nor_moved() -> None:
    before = torch.get_rng_state()
    blobs(classes=4, per_class=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_counts_shape_and_card_are_as_asked() -> None:
    data = build("blobs:classes=10,per_class=4,val=.2", context={"size": 24})
    assert info(data)["pictures"] == {"train": 16, "val": 4, "test": 20}
    assert info(data)["shared_classes"] == {"val": 0, "test": 0}
    assert {"licence", "credits", "sha256", "skipped"} <= set(info(data))
    image, label, index = data.train[0]
    assert (image.shape, image.dtype) == ((3, 24, 24), torch.uint8)
    assert (label, index) == (0, 0)
    assert set(data.train.names).isdisjoint(data.test.names)


def test_pictures_are_coloured_and_none_is_blank_or_twice() -> None:
    images, _, _ = load(blobs(classes=20, per_class=4).train, range(40))
    assert float((images.amax(1) - images.amin(1)).mean((1, 2)).min()) > 0.05
    assert float(images.flatten(1).std(dim=1).min()) > 0.05
    assert len(images.flatten(1).unique(dim=0)) == 40


def test_the_result_does_not_depend_on_the_chunk() -> None:
    shapes = species(7, seeded())
    drawn = [draw(shapes, 13, seeded(3), chunk=chunk) for chunk in (1, 3, 100)]
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_a_shape_covers_what_lies_within_its_fourier_outline() -> None:
    size = 16
    outline = species(3, seeded())["outline"].numpy()
    axis = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(2 / size) - 1
    x, y = (np.broadcast_to(part, (3, size, size)) for part in (axis, axis[:, None]))
    got = inside(x, y, outline, size)
    for shape in range(3):
        for row in range(size):
            for column in range(size):
                radius, angle = cmath.polar(complex(axis[column], axis[row]))
                waves = sum(
                    outline[shape, k - 1, 0] * math.cos(k * angle)
                    + outline[shape, k - 1, 1] * math.sin(k * angle)
                    for k in range(1, WAVES + 1)
                )
                edge = 0.6 * math.exp(waves)
                slow = min(max(0.5 + (edge - radius) * size / 2, 0.0), 1.0)
                assert got[shape, row, column] == pytest.approx(slow, abs=1e-4)


def test_a_frame_is_shifted_turned_and_scaled() -> None:
    size = 8
    x, y = frame(np.array([[0.6, -0.5, 0.3, -0.7]], dtype=np.float32), size)
    turn = cmath.exp(-0.3j) / 0.9
    for row in range(size):
        for column in range(size):
            place = complex((column + 0.5) / 4 - 1 - 0.06, (row + 0.5) / 4 - 1 + 0.14) * turn
            assert x[0, row, column] == pytest.approx(place.real, abs=1e-5)
            assert y[0, row, column] == pytest.approx(place.imag, abs=1e-5)


def test_unseen_classes_are_told_apart_better_than_by_chance() -> None:
    data = blobs(classes=20, per_class=8)
    images, labels, _ = load(data.test, range(len(data.test)))
    colours = torch.nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)
    gap = torch.cdist(colours, colours).fill_diagonal_(math.inf)
    assert float((labels[gap.argmin(1)] == labels).float().mean()) > 0.4
