"""A data set for dmltk."""

from typing import Annotated

import torch
from msgspec import Meta

from dmltk.data.split import Dataset, Memory, Split


def example(
    *,
    classes: Annotated[int, Meta(ge=4)] = 20,
    per_class: Annotated[int, Meta(ge=2)] = 10,
    size: Annotated[int, Meta(ge=4)] = 32,
    seed: Annotated[int, Meta(ge=0)] = 0,
) -> Dataset:
    """Plain pictures, each class a colour, with noise; the second half of the classes tests.

    Args:
        classes: in both halves together.
        per_class: pictures of each.
        size: side of a picture in pixels.
        seed: of colours and noise.
    """
    draws = torch.Generator().manual_seed(seed)
    colours = torch.rand(classes, 1, 3, 1, 1, generator=draws)
    noise = torch.rand(classes, per_class, 3, size, size, generator=draws)
    pixels = (0.8 * colours + 0.2 * noise).mul(255).byte()

    def split(part: range) -> Split:
        labels = torch.arange(len(part)).repeat_interleave(per_class)
        names = [f"colour{number}" for number in part]
        return Split(Memory(pixels[list(part)].flatten(0, 1)), labels, names)

    half = classes // 2
    card = {"name": "example", "classes": classes, "pictures": classes * per_class}
    return Dataset(split(range(half)), None, split(range(half, classes)), card)
