"""Synthetic handwriting: classes of a few curved strokes, drawn on the spot."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from dmltk.data.division import divide
from dmltk.data.split import Dataset, Memory, digest

STROKES = 4
PIECES = 6
JITTER = 0.075
CHUNK = 8

Floats = NDArray[np.float32]


def glyphs(
    *,
    classes: Annotated[int, Meta(ge=2)] = 100,
    per_class: Annotated[int, Meta(ge=1)] = 40,
    size: Annotated[int, Meta(ge=8)] = 32,
    seed: Annotated[int, Meta(ge=0)] = 0,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Made-up characters: a class is 2-4 quadratic strokes, its pictures vary in hand and ink.

    Pictures of a class differ by control-point jitter, rotation, anisotropic scale, shear,
    shift, stroke width, brightness of ink and ground, and noise. Nothing is fetched; the same
    arguments give the same pictures.

    Args:
        classes: number of classes; the first half trains, the second half tests.
        per_class: pictures of each class.
        size: height and width in pixels.
        seed: of the shapes and of the pictures.
        val: share of the training classes, the last ones, kept for validation.
    """
    generator = torch.Generator().manual_seed(seed)
    count = torch.randint(2, STROKES + 1, (classes,), generator=generator)
    shapes = torch.rand(classes, STROKES, 3, 2, generator=generator) * 1.6 - 0.8
    labels = torch.arange(classes).repeat_interleave(per_class)
    points = move(shapes[labels], generator)
    pixels = draw(points, count[labels], size, generator)
    width = len(str(classes - 1))
    names = [f"glyph{label:0{width}d}" for label in range(classes)]
    card = {
        "name": "glyphs",
        "size": size,
        "licence": "none needed: generated",
        "credits": [],
        "sha256": digest(pixels, labels),
        "skipped": {},
    }
    return divide(Memory(pixels), labels, names, val=val, card=card)


def move(points: Tensor, generator: torch.Generator) -> Tensor:
    """Every picture's own control points: jitter, then a random affine map.

    Args:
        points: (N, strokes, 3, 2) in [-1, 1].
        generator: of the draws.
    """
    jitter = torch.randn(points.shape, generator=generator) * JITTER
    draws = torch.rand(len(points), 6, generator=generator) * 2 - 1
    angle, shear = draws[:, 0] * math.radians(25), draws[:, 1] * 0.25
    scale = 0.825 + 0.225 * draws[:, 2:4]
    shift = draws[:, 4:6] * 0.3
    cos, sin = angle.cos(), angle.sin()
    turn = torch.stack([cos, -sin, sin, cos], dim=1).view(-1, 2, 2)
    lean = torch.eye(2).repeat(len(points), 1, 1)
    lean[:, 0, 1] = shear
    affine = turn @ lean @ torch.diag_embed(scale)
    moved = torch.einsum("nij,nskj->nski", affine, points + jitter)
    return moved + shift[:, None, None]


def draw(
    points: Tensor, strokes: Tensor, size: int, generator: torch.Generator, chunk: int = CHUNK
) -> Tensor:
    """Pictures of strokes, in chunks; the result does not depend on `chunk`.

    Small arrays in numpy: many short torch operations would wait for each other's threads.

    Args:
        points: (N, STROKES, 3, 2) control points in [-1, 1].
        strokes: (N,) how many of the strokes each picture shows.
        size: height and width in pixels.
        generator: of width, brightness and noise.
        chunk: pictures drawn at once.

    Returns:
        (N, 1, size, size) uint8.
    """
    draws = torch.rand(len(points), 4, generator=generator).numpy()
    radius = 0.05 + 0.06 * draws[:, 0]
    ink, ground = 0.6 + 0.4 * draws[:, 1], 0.35 * draws[:, 2]
    grain = 0.05 + 0.15 * draws[:, 3]
    start, step = (part.numpy() for part in segments(points, strokes))
    pixels = np.empty((len(points), 1, size, size), dtype=np.uint8)
    for first in range(0, len(points), chunk):
        part = slice(first, first + chunk)
        gap = distance(start[part], step[part], size) - radius[part, None, None]
        cover = np.clip(0.5 - gap * (size / 2), 0, 1)
        noise = torch.rand(cover.shape, generator=generator).numpy() * 2 - 1
        low, high, grit = (value[part, None, None] for value in (ground, ink, grain))
        image = low + (high - low) * cover + grit * noise
        pixels[part, 0] = np.rint(np.clip(image, 0, 1) * 255)
    return torch.from_numpy(pixels)


def segments(points: Tensor, strokes: Tensor) -> tuple[Tensor, Tensor]:
    """Start and step, (N, STROKES · PIECES, 2), of the segments that follow the curves.

    A stroke that a picture does not show repeats its first one.
    """
    shown = torch.arange(STROKES) < strokes[:, None]
    points = torch.where(shown[:, :, None, None], points, points[:, :1])
    t = torch.linspace(0, 1, PIECES + 1)
    weights = torch.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2], dim=1)
    curve = torch.einsum("tk,nskj->nstj", weights, points)
    start, end = curve[:, :, :-1], curve[:, :, 1:]
    return start.flatten(1, 2), (end - start).flatten(1, 2)


def distance(start: Floats, step: Floats, size: int) -> Floats:
    """Distance of every pixel to the nearest segment, (n, size, size).

    With u = (p - a)·d / |d|² and t = clamp(u, 0, 1), the squared distance to a + t·d is
    |p - a|² + |d|²·t·(t - 2u). Both u and |p - a|² are a function of x plus one of y.

    Args:
        start: (n, segments, 2) the points a.
        step: (n, segments, 2) the vectors d.
        size: height and width in pixels, which cover [-1, 1].
    """
    axis = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(2 / size) - 1
    away = axis - start[..., None]
    length = np.maximum(np.square(step).sum(-1), np.float32(1e-8))
    along = away * (step / length[..., None])[..., None]
    far = np.square(away)
    u = along[..., 0, None, :] + along[..., 1, :, None]
    square = far[..., 0, None, :] + far[..., 1, :, None]
    t = np.clip(u, 0, 1)
    u *= -2
    u += t
    u *= t
    u *= length[..., None, None]
    square += u
    nearest: Floats = np.sqrt(np.maximum(square.min(axis=1), 0))
    return nearest
