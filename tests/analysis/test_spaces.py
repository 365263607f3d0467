"""Spaces of the same pictures and their figures."""

from __future__ import annotations

import json

import pytest
import torch
from dmltk import registry
from dmltk.analysis.spaces import SIDE, Space, figures, pixels
from dmltk.data.split import Memory, Split


def split(labels: list[int], channels: int = 1, side: int = 4) -> Split:
    generator = torch.Generator().manual_seed(0)
    shape = (len(labels), channels, side, side)
    images = torch.randint(256, shape, generator=generator).to(torch.uint8)
    given = torch.tensor(labels)
    return Split(Memory(images), given, [f"c{i}" for i in range(int(given.max()) + 1)])


def test_pixels_are_the_pictures_without_copies_of_a_channel() -> None:
    assert pixels(split([0, 1, 0])).positions.shape == (3, 16)
    coloured = split([0, 1, 0], channels=3)
    assert torch.equal(pixels(coloured).positions, coloured.pictures.read([0, 1, 2]).flatten(1))
    assert pixels(split([0, 1], side=SIDE + 20)).positions.shape == (2, SIDE * SIDE)


def test_the_whole_agrees_with_the_registered_metrics() -> None:
    given = split([0, 0, 0, 1, 1, 2] * 4)
    z = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
    found = figures(Space("main", ("main",), z), given, torch.ones(24, dtype=torch.bool))
    arguments = z, z, given.labels, given.labels, torch.arange(24)

    def metric(spec: str) -> float:
        (value,) = registry.build("metrics", spec)(*arguments).values()
        return value

    assert found["found"] == round(metric("recall:ks=[1]") * 24)
    assert found["share"] == pytest.approx(metric("precision"))
    assert found["tightness"] == pytest.approx(metric("tightness"))
    assert found["found_known"] is None
    classes = found["classes"].values()
    assert sum(c["found"] for c in classes) == found["found"]
    assert {c["found_known"] for c in classes} == {None}


def test_known_classes_are_counted_among_themselves() -> None:
    given = split([0, 1, 2] * 5)
    z = torch.randn(15, 2, generator=torch.Generator().manual_seed(1))
    known = given.labels < 2
    found = figures(Space("main", (), z), given, known)
    alone = figures(Space("main", (), z[known]), split([0, 1] * 5), known[known])
    assert found["found_known"] == alone["found"]
    for name in ("c0", "c1"):
        assert found["classes"][name]["found_known"] == alone["classes"][name]["found"]
    assert found["classes"]["c2"]["found_known"] is None


@pytest.mark.parametrize("labels", [[0, 0], [0, 1], [0, 0, 1], [0] * 6])
def test_tiny_splits_are_defined(labels: list[int]) -> None:
    given = split(labels)
    for known in (True, False):
        found = figures(pixels(given), given, torch.full((len(labels),), known))
        json.dumps(found, allow_nan=False)
        assert (found["tightness"] is None) == (len(set(labels)) == 1 or len(labels) == 2)
