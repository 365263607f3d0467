"""Hypothesis strategies for what parts are given: pictures, labels, specs."""

from __future__ import annotations

import string
from typing import Any

import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from torch import Tensor

from dmltk.spec import Spec

__all__ = ["FEW", "labels", "pictures", "specs"]

FEW = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
"""How the kit draws: the same few examples every time, none of them shrunk."""


COUNTS, SIZES = st.integers(1, 5), st.integers(4, 20)
RGB, FLOATS = st.just(3), st.sampled_from([torch.float32, torch.float64])


@st.composite
def pictures(
    draw: Any,
    *,
    count: Any = COUNTS,
    channels: Any = RGB,
    size: Any = SIZES,
    dtype: Any = FLOATS,
) -> Tensor:
    """Pictures (N, C, H, W) in [0, 1], some of them with pixels of exactly 0 and 1.

    Args:
        draw: hypothesis's own.
        count: strategy of N.
        channels: strategy of C.
        size: strategy of H and of W.
        dtype: strategy of the type.
    """
    shape = draw(count), draw(channels), draw(size), draw(size)
    draws = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([1.0, 1.0, 3.0]))
    drawn = torch.rand(shape, generator=draws, dtype=torch.float64)
    return (0.5 + spread * (drawn - 0.5)).clamp(0, 1).to(draw(dtype))


@st.composite
def labels(draw: Any, count: int, *, classes: int = 2) -> Tensor:
    """Labels (count,) of at least `classes` classes where there is room, with gaps."""
    kinds = draw(st.lists(st.integers(0, 10**6), min_size=classes, max_size=8, unique=True))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    chosen[: len(kinds[:classes])] = kinds[:classes]
    return torch.tensor(draw(st.permutations(chosen[:count])))


_names = st.text(string.ascii_lowercase, min_size=1, max_size=8)
_values = st.text(string.ascii_letters + string.digits + " ,='()[]./-", min_size=1, max_size=8)


def specs() -> Any:
    """Specs: a name with up to three arguments by name."""
    return st.builds(
        lambda name, arguments: Spec(name, (), arguments),
        _names,
        st.dictionaries(_names, _values, max_size=3),
    )
