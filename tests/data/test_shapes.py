from __future__ import annotations

import math

import pytest
import torch
from dmltk.data import build, info
from dmltk.data.shapes import KINDS, distance, shapes
from dmltk.data.split import load
from dmltk.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

numbers = st.floats(-8, 8)


def test_three_kinds_train_and_all_five_test_on_other_pictures() -> None:
    data = build("shapes")
    assert data.train.names == ["cross", "square", "disc"]
    assert data.test.names == list(KINDS)
    assert info(data)["pictures"] == {"train": 180, "test": 300}
    assert info(data)["shared_classes"] == {"test": 3}
    train, test = (load(part, range(len(part)))[0].flatten(1) for part in (data.train, data.test))
    assert (torch.cdist(train, test) > 0).all()
    assert data.test[0][0].shape == (3, 16, 16)


def test_the_same_arguments_give_the_same_pictures_and_another_seed_others() -> None:
    first, again, other = (shapes(per_class=2, test_per_class=2, seed=seed) for seed in (4, 4, 5))
    assert first.card == again.card
    assert first.card["sha256"] != other.card["sha256"]


def test_test_pictures_do_not_hang_on_what_trains() -> None:
    few, many = shapes(per_class=2), shapes(train=KINDS, per_class=9)
    assert torch.equal(load(few.test, range(300))[0], load(many.test, range(300))[0])


def test_all_kinds_can_train_and_the_last_ones_be_kept() -> None:
    data = build("shapes:train=[ring,bar,disc,square],per_class=3,val=.25")
    assert data.train.names == ["square", "disc", "bar"]
    assert data.val is not None
    assert data.val.names == ["ring"]


@pytest.mark.parametrize("train", [(), ("ring", "ring")])
def test_kinds_that_cannot_train_are_refused(train: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="each once"):
        shapes(train=train)  # type: ignore[arg-type]


@given(numbers, numbers, st.floats(3, 6), st.sampled_from([1.0, -1.0]))
def test_a_point_is_inside_what_a_pencil_would_draw(
    x: float, y: float, radius: float, turn: float
) -> None:
    far, box = math.hypot(x, y), max(abs(x), abs(y))
    u, v = (x + turn * y) / math.sqrt(2), (x - turn * y) / math.sqrt(2)
    inside = {
        "cross": box < radius and (abs(x) < 1 or abs(y) < 1),
        "square": radius - 1 < box < radius + 1,
        "disc": far < radius,
        "bar": abs(v) < 1 and abs(u) < radius,
        "ring": radius - 1 < far < radius + 1,
    }
    one = torch.ones(5, dtype=torch.float64)
    found = distance(
        torch.arange(5), x * one[:, None, None], y * one[:, None, None], radius * one, turn * one
    )
    for kind, gap in zip(KINDS, found.flatten().tolist(), strict=True):
        assert inside[kind] == (gap < 0) or abs(gap) < 1e-9


def test_every_kind_is_as_large_at_twice_the_size() -> None:
    small, large = shapes(test_per_class=20), shapes(test_per_class=20, size=32)
    for kind in range(5):
        shares = []
        for data in (small, large):
            images, labels, _ = load(data.test, range(100))
            pictures = images[labels == kind, 0]
            middle = (pictures.amin((1, 2)) + pictures.amax((1, 2)))[:, None, None] / 2
            shares.append((pictures > middle).float().mean().item())
        assert shares[0] == pytest.approx(shares[1], rel=0.2)
