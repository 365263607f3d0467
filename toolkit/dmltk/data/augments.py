"""Augmentations of a batch, every picture with draws of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from msgspec import Meta
from torch import Generator, Tensor
from torch.nn import functional

from dmltk import registry
from dmltk.errors import UserError

Augment = Callable[[Tensor, Generator], Tensor]


def flip(*, p: Annotated[float, Meta(ge=0, le=1)] = 0.5) -> Augment:
    """Horizontal flips, decided picture by picture.

    Args:
        p: probability of a flip.

    Returns:
        f(images (N, C, H, W), CPU generator) -> images of the same shape and type.
    """

    def apply(images: Tensor, generator: Generator) -> Tensor:
        turned = torch.rand(len(images), generator=generator).to(images.device) < p
        return torch.where(turned[:, None, None, None], images.flip(-1), images)

    return apply


def crop(
    *,
    scale_min: Annotated[float, Meta(gt=0, le=1)] = 0.2,
    scale_max: Annotated[float, Meta(gt=0, le=1)] = 1.0,
    ratio: Annotated[float, Meta(ge=1)] = 4 / 3,
) -> Augment:
    """Random resized crops: a part of each picture, stretched to the picture's size.

    Args:
        scale_min: smallest area of the part, as a share of the picture's.
        scale_max: largest area.
        ratio: width / height of the part lies within [1 / ratio, ratio].

    Returns:
        f(images (N, C, H, W) float in [0, 1], CPU generator) -> images of the same shape.
    """
    if scale_min > scale_max:
        raise UserError(f"crop: scale_min {scale_min} exceeds scale_max {scale_max}; swap them")

    def apply(images: Tensor, generator: Generator) -> Tensor:
        if not len(images):
            return images
        draws = torch.rand(len(images), 4, generator=generator)
        area = scale_min + (scale_max - scale_min) * draws[:, 0]
        shape = ratio ** (draws[:, 1] * 2 - 1)
        part = torch.stack([(area * shape).sqrt(), (area / shape).sqrt()], dim=1).clamp_(max=1)
        centre = (1 - part) * (draws[:, 2:] * 2 - 1)
        theta = torch.cat([torch.diag_embed(part), centre[:, :, None]], dim=2).to(images)
        grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
        cut = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
        return cut.clamp_(0, 1)

    return apply


def shift(*, pixels: Annotated[int, Meta(ge=0)] = 4) -> Augment:
    """Random shifts up to some pixels in each direction; what comes in is black.

    Args:
        pixels: the largest shift.

    Returns:
        f(images (N, C, H, W) float in [0, 1], CPU generator) -> images of the same shape.
    """

    def apply(images: Tensor, generator: Generator) -> Tensor:
        count, _, height, width = images.shape
        draws = torch.randint(2 * pixels + 1, (count, 2), generator=generator).to(images.device)
        padded = functional.pad(images, [pixels] * 4)
        rows = draws[:, :1] + torch.arange(height, device=images.device)
        columns = draws[:, 1:] + torch.arange(width, device=images.device)
        picture = torch.arange(count, device=images.device)[:, None, None]
        moved = padded[picture, :, rows[:, :, None], columns[:, None, :]]
        return moved.permute(0, 3, 1, 2).contiguous()

    return apply


def highpass(*, radius: Annotated[float, Meta(gt=0)] = 8.0) -> Augment:
    """What a picture holds of high frequencies; not clipped, of mean zero.

    Args:
        radius: frequencies nearer to zero than this are removed, in periods a picture; 8 is of 32
            pixels.

    Returns:
        f(images (N, C, H, W) float, CPU generator) -> as many numbers, negative ones too.

    Source: Fan et al. 2021, When does contrastive learning preserve adversarial robustness from
        pretraining to finetuning? (AdvCL), section 4.1.
    """

    def apply(images: Tensor, generator: Generator) -> Tensor:
        height, width = images.shape[-2:]
        y = torch.fft.fftfreq(height, 1 / height, device=images.device)
        x = torch.fft.rfftfreq(width, 1 / width, device=images.device)
        kept = (y[:, None].square() + x.square()).sqrt() >= radius
        return torch.fft.irfft2(torch.fft.rfft2(images) * kept, s=(height, width))

    return apply


def chain(augments: list[str]) -> Augment:
    """Augments one after the other: `chain:[crop,flip,randaugment(magnitude=5)]`.

    Args:
        augments: their specs, in order.

    Returns:
        f(images (N, C, H, W) float in [0, 1], CPU generator) -> images of the same kind.
    """
    if not augments:
        raise UserError("chain needs one augment at least: chain:[crop,flip]")
    parts: list[Augment] = [registry.build("augments", spec) for spec in augments]

    def apply(images: Tensor, generator: Generator) -> Tensor:
        for part in parts:
            images = part(images, generator)
        return images

    return apply
