"""Five drawn shapes on 16 by 16 pixels: what a first course in pair losses trains on."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from dmltk import seeds
from dmltk.data.division import divide
from dmltk.data.split import Dataset, Memory, digest
from dmltk.errors import UserError

Kind = Literal["cross", "square", "disc", "bar", "ring"]
KINDS: tuple[Kind, ...] = ("cross", "square", "disc", "bar", "ring")
OWN = 16
WANDER = 2.5
"""How far a shape's centre lies from the picture's, at most, in pixels of 16."""
NOISE = 0.05


def shapes(
    *,
    train: tuple[Kind, ...] = ("cross", "square", "disc"),
    per_class: Annotated[int, Meta(ge=1)] = 60,
    test_per_class: Annotated[int, Meta(ge=1)] = 60,
    size: Annotated[int, Meta(ge=8)] = OWN,
    seed: Annotated[int, Meta(ge=0)] = 0,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Crosses, square outlines, discs, diagonal bars and rings of one channel.

    Pictures of a kind differ by radius, place, brightness of ground and ink, and noise, a bar
    also by its diagonal. All five kinds test; a kind that also trains is tested on other pictures
    of it. Nothing is fetched; the same arguments give the same pictures.

    Args:
        train: kinds that are trained on.
        per_class: training pictures of each kind.
        test_per_class: test pictures of each of the five kinds.
        size: height and width in pixels; everything is drawn in proportion to 16.
        seed: of the pictures; training and test pictures are drawn apart.
        val: share of the training kinds, the last ones, kept for validation.

    Raises:
        UserError: a kind stands twice in `train`, or it is empty.
    """
    if not train or len(set(train)) < len(train):
        raise UserError(f"shapes: train={list(train)} must name kinds, each once")
    drawn = [
        _drawn(kinds, count, size, seeds.generator(seed, "shapes", part))
        for part, kinds, count in (("train", train, per_class), ("test", KINDS, test_per_class))
    ]
    pixels = torch.cat([pictures for pictures, _ in drawn])
    labels = torch.cat([kinds for _, kinds in drawn])
    parts = ["train"] * len(drawn[0][1]) + ["test"] * len(drawn[1][1])
    card = {
        "name": "shapes",
        "size": size,
        "licence": "none needed: generated",
        "credits": [],
        "sha256": digest(pixels, labels),
        "skipped": {},
    }
    return divide(Memory(pixels), labels, KINDS, val=val, card=card, parts=parts)


def _drawn(
    kinds: tuple[Kind, ...], count: int, size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(n, 1, size, size) uint8 pictures, `count` of each kind, and their places in KINDS."""
    labels = torch.tensor([KINDS.index(kind) for kind in kinds]).repeat_interleave(count)
    draws = torch.rand(len(labels), 6, generator=generator)
    radius = 3 + 3 * draws[:, 0]
    room = (OWN / 2 - radius)[:, None]
    centre = ((draws[:, 1:3] * 2 - 1) * WANDER).clamp(-room, room)
    ground = 0.4 * draws[:, 3]
    ink = ground + 0.4 + 0.2 * draws[:, 4]
    turn = torch.where(draws[:, 5] < 0.5, 1.0, -1.0)
    axis = (torch.arange(size) + 0.5) * (OWN / size) - OWN / 2
    x, y = axis - centre[:, :1], axis - centre[:, 1:]
    gap = distance(labels, x[:, None, :], y[:, :, None], radius, turn)
    cover = (0.5 - gap * (size / OWN)).clamp(0, 1)
    noise = torch.randn(cover.shape, generator=generator) * NOISE
    picture = ground[:, None, None] + (ink - ground)[:, None, None] * cover + noise
    return (picture.clamp(0, 1) * 255).round().to(torch.uint8)[:, None], labels


def distance(kinds: Tensor, x: Tensor, y: Tensor, radius: Tensor, turn: Tensor) -> Tensor:
    """How far each point is outside the shape (negative inside), in pixels of 16.

    Strokes are two pixels wide.

    Args:
        kinds: (n,) places in KINDS.
        x: (n, 1, w) distance to the right of the centre.
        y: (n, h, 1) distance below it.
        radius: (n,) half a side, an arm, or a radius.
        turn: (n,) 1 or -1, a bar's diagonal.
    """
    r, s = radius[:, None, None], turn[:, None, None]
    far = (x.square() + y.square()).sqrt()
    box = torch.maximum(x.abs(), y.abs())
    across, along = ((x - s * y) / math.sqrt(2)).abs(), ((x + s * y) / math.sqrt(2)).abs()
    found = {
        "cross": torch.maximum(torch.minimum(x.abs(), y.abs()) - 1, box - r),
        "square": (box - r).abs() - 1,
        "disc": far - r,
        "bar": torch.maximum(across - 1, along - r),
        "ring": (far - r).abs() - 1,
    }
    stacked = torch.stack(torch.broadcast_tensors(*(found[kind] for kind in KINDS)))
    return stacked[kinds, torch.arange(len(kinds))]
