"""Every classification model of torchvision by its name, as a source of embedders."""

from __future__ import annotations

import inspect
import warnings
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn
from torchvision import models as zoo

from dmltk.errors import DmltkError, UserError, unknown
from dmltk.models.source import Source, evaluating, plain_pool

__all__ = ["torchvision"]

SIZED = {zoo.VisionTransformer: "image_size", zoo.MaxVit: "input_size"}
AUXILIARY = ("AuxLogits", "aux1", "aux2")
INCEPTIONS = (zoo.GoogLeNet, zoo.Inception3)


def torchvision(
    name: str,
    *,
    pretrained: bool = False,
    tag: str = "DEFAULT",
    size: Annotated[int, Meta(ge=0)] = 0,
) -> Source:
    """A classification model of torchvision, without the last layer of its classifier.

    The dropout right before that layer and auxiliary classifiers go with it.

    Args:
        name: as torchvision lists it: `resnet50`, `vit_b_16`.
        pretrained: fetch the weights from torchvision's own address (needs access to it).
        tag: which weights, also for the normalisation and the picture size: `IMAGENET1K_V1`.
        size: side of the pictures in pixels; 0 is that of the weights.

    Source: the torchvision library.
    """
    names = zoo.list_models(module=zoo)
    if name not in names:
        raise unknown("torchvision model", name, names)
    tags = zoo.get_model_weights(name)
    if tag not in tags.__members__:
        raise unknown("tag", tag, tags.__members__, f"torchvision:{name}")
    card = tags[tag]
    kind = inspect.signature(zoo.get_model_builder(name), eval_str=True).return_annotation
    if kind is zoo.MNASNet:
        raise UserError(
            f"torchvision's '{name}' loads no weights without a version note, which a safetensors"
            " file cannot hold: take timm:mnasnet_100 or another of timm's mnasnets"
        )
    module = _created(name, card if pretrained else None, _arguments(kind, size))
    classifier = _cut(module)
    preset = card.transforms()
    source = Source(
        module,
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        size=size or preset.crop_size[0],
        pools=("avg",),
        classifier=(classifier, *AUXILIARY),
    )
    return _with_map(source)


def _arguments(kind: type[nn.Module], size: int) -> dict[str, Any]:
    """What the class of a model must be told."""
    if issubclass(kind, INCEPTIONS):
        return {"init_weights": False, "transform_input": True}
    if size and kind in SIZED:
        return {SIZED[kind]: (size, size) if kind is zoo.MaxVit else size}
    return {}


def _created(name: str, card: Any, args: dict[str, Any]) -> nn.Module:
    if card is not None:
        amount = f" ({card.meta['_file_size']:.0f} MB)" if "_file_size" in card.meta else ""
        warnings.warn(f"pretrained=true fetches '{name}' from {card.url}{amount}", stacklevel=4)
    try:
        return zoo.get_model(name, weights=card, **args)
    except Exception as error:
        if card is None:
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DmltkError(
            f"the weights of torchvision model '{name}' cannot be fetched ({reason});"
            " leave pretrained out and give weights=FILE"
        ) from error


def _cut(module: nn.Module) -> str:
    """Take off the last layer with weights, in place; its name."""
    layers = [n for n, part in module.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    path, _, last = layers[-1].rpartition(".")
    parent = module.get_submodule(path)
    before = [name for name, _ in parent.named_children()]
    place = before.index(last)
    setattr(parent, last, nn.Identity())
    if place and isinstance(getattr(parent, before[place - 1]), nn.Dropout):
        setattr(parent, before[place - 1], nn.Identity())
    for name in AUXILIARY:
        if hasattr(module, name):
            setattr(module, name, None)
            module.aux_logits = False  # type: ignore[assignment]
    return layers[-1]


def _with_map(source: Source) -> Source:
    """The source with all pools, where its feature is the average of a map that can be had."""
    trunk = _Trunk(source.module)
    side = source.size or 0
    picture = torch.rand(1, len(source.mean), side, side, generator=torch.Generator())
    with evaluating(source.module):
        own = source.module(picture)
        found = trunk(picture) if trunk.names else own
    plain = (
        found.ndim == 4
        and found.shape[:2] == own.shape
        and torch.allclose(plain_pool(found, "avg"), own, atol=1e-5)
    )
    return Source(
        source.module,
        source.mean,
        source.std,
        source.size,
        features=trunk if plain else None,
        num_features=own.shape[1],
        pools=("avg", "max", "avgmax") if plain else ("avg",),
        classifier=source.classifier,
    )


class _Trunk:
    """The children before the pooling, one after the other."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        children = [name for name, _ in module.named_children()]
        self.names = children[: children.index("avgpool")] if "avgpool" in children else []

    def __call__(self, pictures: Tensor) -> Tensor:
        for name in self.names:
            pictures = getattr(self.module, name)(pictures)
        return pictures
