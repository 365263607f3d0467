"""Handwritten digits, 8 by 8 pixels, that come with scikit-learn."""

from __future__ import annotations

from typing import Annotated

import torch
from msgspec import Meta
from torchvision.transforms.v2 import functional

from dmltk.data.division import divide
from dmltk.data.split import Dataset, Memory, digest

OWN = 8
CREDIT = {
    "name": "digits",
    "licence": "BSD-3-Clause",
    "credit": "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (UCI);"
    " the test part as scikit-learn ships it",
}


def digits(
    *,
    size: Annotated[int, Meta(ge=8)] = OWN,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Handwritten digits of scikit-learn, 1,797 pictures: 0-4 train, 5-9 test.

    Small enough to be a test only. Nothing is fetched.

    Args:
        size: height and width in pixels; above 8 the pictures are enlarged.
        val: share of the training classes, the last ones, kept for validation.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    levels = torch.from_numpy(found.images) * (255 / 16)
    pixels = levels.round().to(torch.uint8)[:, None]
    if size != OWN:
        pixels = functional.resize(pixels, [size, size], antialias=True)
    labels = torch.from_numpy(found.target).long()
    card = {
        "name": "digits",
        "size": size,
        "licence": CREDIT["licence"],
        "credits": [CREDIT],
        "sha256": digest(pixels, labels),
        "skipped": {},
    }
    return divide(Memory(pixels), labels, [str(name) for name in range(10)], val=val, card=card)
