"""What every augment must do."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dmltk.testing import samples, strategies
from dmltk.testing.part import Part


def use(part: Part) -> Tensor:
    """Twelve tiny pictures after it."""
    return _applied(part, samples.batch().images)


def check_pictures_stay_pictures(part: Part) -> None:
    """Of any count and size: the same shape and type, in [0, 1]."""

    @strategies.FEW
    @given(strategies.pictures(size=st.integers(8, 24), dtype=st.just(torch.float32)))
    def holds(images: Tensor) -> None:
        found = _applied(part, images)
        assert found.shape == images.shape, f"{tuple(images.shape)} become {tuple(found.shape)}"
        assert found.dtype == images.dtype, f"{images.dtype} become {found.dtype}"
        assert torch.isfinite(found).all(), "some pixels are not finite"
        assert found.min() >= 0 and found.max() <= 1, "some pixels leave [0, 1]: clamp them"

    holds()


def check_pictures_are_not_written_into(part: Part) -> None:
    """It works on a copy."""
    images = samples.batch().images
    before = images.clone()
    _applied(part, images)
    assert torch.equal(images, before), "it writes into the pictures that it is given"


def check_the_generator_decides(part: Part) -> None:
    """One seed gives one result, whatever torch's global random state."""
    images = samples.batch().images
    with torch.random.fork_rng(devices=[]):
        found = []
        for state in (1, 2):
            torch.manual_seed(state)
            found.append(_applied(part, images))
    assert torch.equal(*found), "the result hangs on torch's global random state"


def _applied(part: Part, images: Tensor) -> Tensor:
    found: Tensor = part.build()(images, torch.Generator().manual_seed(0))
    return found
