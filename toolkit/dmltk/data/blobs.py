"""Synthetic creatures: a class is a wavy outline with stripes in two colours."""

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

WAVES = 5
CHUNK = 16

Floats = NDArray[np.float32]


def blobs(
    *,
    classes: Annotated[int, Meta(ge=2)] = 100,
    per_class: Annotated[int, Meta(ge=1)] = 40,
    size: Annotated[int, Meta(ge=8)] = 32,
    seed: Annotated[int, Meta(ge=0)] = 0,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Made-up coloured shapes, easier than glyphs: a radial Fourier outline with stripes.

    A class has an outline, two colours, and the number, direction and phase of its stripes. Its
    pictures differ by rotation, scale, shift, small changes of outline and colour, brightness,
    ground and noise. Nothing is fetched; the same arguments give the same pictures.

    Args:
        classes: number of classes; the first half trains, the second half tests.
        per_class: pictures of each class.
        size: height and width in pixels.
        seed: of the shapes and of the pictures.
        val: share of the training classes, the last ones, kept for validation.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    shapes = species(classes, generator)
    pixels = draw({name: part[labels] for name, part in shapes.items()}, size, generator)
    width = len(str(classes - 1))
    names = [f"blob{label:0{width}d}" for label in range(classes)]
    card = {
        "name": "blobs",
        "size": size,
        "licence": "none needed: generated",
        "credits": [],
        "sha256": digest(pixels, labels),
        "skipped": {},
    }
    return divide(Memory(pixels), labels, names, val=val, card=card)


def species(classes: int, generator: torch.Generator) -> dict[str, Tensor]:
    """What the pictures of a class have in common.

    Returns:
        outline (classes, WAVES, 2), cosine and sine of each wave, weaker the shorter it is;
        stripes (classes, 2), wave vector in radians over half a picture; phase (classes,);
        colours (classes, 2, 3) in [0, 1].
    """
    strength = 0.22 / torch.arange(1, WAVES + 1).sqrt()
    outline = torch.randn(classes, WAVES, 2, generator=generator) * strength[:, None]
    draws = torch.rand(classes, 3, generator=generator)
    count, angle = 2 + 4 * draws[:, 0], draws[:, 1] * math.pi
    stripes = torch.stack([angle.cos(), angle.sin()], dim=1) * (count * math.pi)[:, None]
    colours = torch.rand(classes, 2, 3, generator=generator)
    phase = draws[:, 2] * 2 * math.pi
    return {"outline": outline, "stripes": stripes, "phase": phase, "colours": colours}


def draw(
    shapes: dict[str, Tensor], size: int, generator: torch.Generator, chunk: int = CHUNK
) -> Tensor:
    """Pictures of shapes, in chunks; the result does not depend on `chunk`.

    Args:
        shapes: what `species` gives, of each of N pictures.
        size: height and width in pixels.
        generator: of all in which pictures of a class differ.
        chunk: pictures drawn at once.

    Returns:
        (N, 3, size, size) uint8.
    """
    count = len(shapes["phase"])
    draws = (torch.rand(count, 8, generator=generator) * 2 - 1).numpy()
    wobble = torch.randn(shapes["outline"].shape, generator=generator) * 0.02
    tint = torch.randn(shapes["colours"].shape, generator=generator) * 0.06
    outline = (shapes["outline"] + wobble).numpy()
    colours = (shapes["colours"] + tint).numpy()
    stripes, phase = shapes["stripes"].numpy(), shapes["phase"].numpy()
    grounds = torch.rand(count, 3, 1, 1, generator=generator).numpy() * np.float32(0.5)
    pixels = np.empty((count, 3, size, size), dtype=np.uint8)
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        x, y = frame(draws[part], size)
        cover = inside(x, y, outline[part], size)[:, None]
        wave = x * stripes[part, 0, None, None] + y * stripes[part, 1, None, None]
        share = 0.5 + 0.5 * np.sin(wave + phase[part, None, None])[:, None]
        dark, light = (colours[part, which, :, None, None] for which in (0, 1))
        body = (dark + (light - dark) * share) * (1 + 0.25 * draws[part, 4, None, None, None])
        noise = torch.rand(body.shape, generator=generator).numpy() * 2 - 1
        image = grounds[part] + (body - grounds[part]) * cover + np.float32(0.06) * noise
        pixels[part] = np.rint(np.clip(image, 0, 1) * 255)
    return torch.from_numpy(pixels)


def frame(draws: Floats, size: int) -> tuple[Floats, Floats]:
    """Coordinates of every pixel, (n, size, size) each, as the shape itself sees them.

    Args:
        draws: (n, ≥4) in [-1, 1]: rotation, scale, and the two shifts.
        size: height and width in pixels, which cover [-1, 1].
    """
    axis = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(2 / size) - 1
    angle, scale, right, down = (draws[:, place, None, None] for place in range(4))
    x, y = axis - np.float32(0.2) * right, axis[:, None] - np.float32(0.2) * down
    cos, sin = np.cos(angle * np.float32(0.5)), np.sin(angle * np.float32(0.5))
    grown = 1 + np.float32(0.2) * scale
    return (cos * x + sin * y) / grown, (cos * y - sin * x) / grown


def inside(x: Floats, y: Floats, outline: Floats, size: int) -> Floats:
    """How much of every pixel the shape covers, softened over about a pixel.

    The outline lies at the radius .6·exp(Σ aₖ cos kθ + bₖ sin kθ); with (x + iy)/r = e^{iθ} the
    waves are powers, which cost no trigonometry.

    Args:
        x: (n, size, size).
        y: likewise.
        outline: (n, WAVES, 2) the numbers a and b.
        size: height and width in pixels.
    """
    radius = np.sqrt(x * x + y * y)
    unit = (x + 1j * y) / np.maximum(radius, np.float32(1e-6))
    power, total = np.ones_like(unit), np.zeros_like(radius)
    for wave in range(WAVES):
        power = power * unit
        total += outline[:, wave, 0, None, None] * power.real
        total += outline[:, wave, 1, None, None] * power.imag
    edge = np.float32(0.6) * np.exp(total)
    covered: Floats = np.clip(0.5 + (edge - radius) * np.float32(size / 2), 0, 1)
    return covered
