"""Transforms of torchvision as augments: every picture with draws of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Generator, Tensor
from torchvision.transforms import v2

from dmltk.data.augments import Augment, crop, flip
from dmltk.errors import UserError

Transform = Callable[[Tensor], Tensor]
Rate = Annotated[float, Meta(ge=0, le=1)]


def each(transform: Transform, *, bytes_only: bool = False) -> Augment:
    """A transform that draws from torch's global state, as an augment.

    The transform gets one picture at a time, after the global state was seeded from the
    generator; that state is as before afterwards. So a picture does not depend on its batch
    mates.

    Args:
        transform: (C, H, W) to (C, H, W).
        bytes_only: whether it takes uint8; pictures are rounded to 8 bits and come back as they
            were.

    Returns:
        f(images (N, 1 or 3, H, W) float in [0, 1], CPU generator) -> images of the same kind.
    """

    def one(image: Tensor, seed: int) -> Tensor:
        torch.default_generator.manual_seed(seed)
        if not bytes_only:
            return transform(image).clamp(0, 1)
        levels = transform((image * 255).round().to(torch.uint8))
        return levels.to(image.dtype) / 255

    def apply(images: Tensor, generator: Generator) -> Tensor:
        if images.shape[1] not in (1, 3):
            raise UserError(
                f"this augment takes pictures of 1 or 3 channels, not of {images.shape[1]};"
                " use flip or crop"
            )
        seeds = torch.randint(2**62, (len(images),), generator=generator).tolist()
        with torch.random.fork_rng(devices=[]):
            made = [one(image, seed) for image, seed in zip(images, seeds, strict=True)]
        return torch.stack(made) if made else images

    return apply


def autoaugment(*, policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet") -> Augment:
    """AutoAugment: a pair of operations from a learned policy, on 8-bit pictures.

    Args:
        policy: the data set that it was learned on.

    Source: Cubuk et al., AutoAugment: Learning Augmentation Strategies from Data; torchvision.
    """
    return each(v2.AutoAugment(v2.AutoAugmentPolicy(policy)), bytes_only=True)


def randaugment(
    *,
    ops: Annotated[int, Meta(ge=0)] = 2,
    magnitude: Annotated[int, Meta(ge=0, le=30)] = 9,
) -> Augment:
    """RandAugment: some operations drawn alike, all of one magnitude, on 8-bit pictures.

    Args:
        ops: operations on each picture, one after the other.
        magnitude: of each of them, out of 31 steps.

    Source: Cubuk et al., RandAugment: Practical Automated Data Augmentation; torchvision.
    """
    return each(v2.RandAugment(num_ops=ops, magnitude=magnitude), bytes_only=True)


def jitter(
    *,
    brightness: Annotated[float, Meta(ge=0)] = 0.4,
    contrast: Annotated[float, Meta(ge=0)] = 0.4,
    saturation: Annotated[float, Meta(ge=0)] = 0.4,
    hue: Annotated[float, Meta(ge=0, le=0.5)] = 0.1,
    p: Rate = 0.8,
) -> Augment:
    """Colour jitter: brightness, contrast, saturation and hue, in an order that is drawn too.

    Args:
        brightness: factors lie within 1 ± this.
        contrast: likewise.
        saturation: likewise.
        hue: shifts lie within ± this, as a share of the colour circle.
        p: probability that a picture is changed.

    Source: Chen et al., SimCLR, appendix A; torchvision.
    """
    colours = v2.ColorJitter(brightness, contrast, saturation, hue)
    return each(v2.RandomApply([colours], p=p))


def grey(*, p: Rate = 0.2) -> Augment:
    """Grey pictures, decided picture by picture, in as many channels as before.

    Args:
        p: probability that a picture becomes grey.

    Source: Chen et al., SimCLR, appendix A; torchvision.
    """
    return each(v2.RandomGrayscale(p))


class Views:
    """The views of contrastive learning, as strong as asked at each call."""

    takes_strength = True

    def __init__(self, scale_min: float) -> None:
        self.scale_min = scale_min

    def __call__(self, images: Tensor, generator: Generator, strength: float = 1.0) -> Tensor:
        """Crop, flip, jitter, grey.

        Args:
            images: (N, 1 or 3, H, W) float in [0, 1].
            generator: of all draws.
            strength: 1 is the whole of it, 0 flips only.
        """
        colours = 0.4 * strength
        parts = [
            crop(scale_min=1 - (1 - self.scale_min) * strength, ratio=(4 / 3) ** strength),
            flip(),
            jitter(
                brightness=colours,
                contrast=colours,
                saturation=colours,
                hue=0.1 * strength,
                p=0.8 * strength,
            ),
            grey(p=0.2 * strength),
        ]
        for part in parts:
            images = part(images, generator)
        return images


def views(*, scale_min: Annotated[float, Meta(gt=0, le=1)] = 0.2) -> Views:
    """The views of contrastive learning: random crop, flip, colour jitter, grey.

    A branch may give it a `strength` that changes while it trains.

    Args:
        scale_min: smallest area of the crop, as a share of the picture's, at strength 1.

    Returns:
        f(images (N, 1 or 3, H, W) float in [0, 1], CPU generator, strength=1) -> images alike.

    Source: Chen et al., SimCLR, appendix A; Luo et al. 2023, Rethinking the effect of data
        augmentation in adversarial contrastive learning (DynACL), for the strength.
    """
    return Views(scale_min)
