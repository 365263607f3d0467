"""Every model of timm by its name, as a source of embedders."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from msgspec import Meta
from timm import create_model, is_model, list_models
from timm.models import get_pretrained_cfg
from torch import Tensor

from dmltk.errors import DmltkError, UserError, unknown
from dmltk.models.source import Source, evaluating, plain_pool

__all__ = ["timm"]


def timm(
    name: str,
    *,
    pretrained: bool = False,
    drop_path: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    checkpointing: bool = False,
    channels: Annotated[int, Meta(ge=0)] = 0,
    size: Annotated[int, Meta(ge=0)] = 0,
) -> Source:
    """A model of timm, with its own normalisation, picture size and pooling.

    Args:
        name: as timm lists it, with or without a tag: `resnet50`, `resnet50.tv_in1k`.
        pretrained: fetch the weights from timm's model hub (needs access to it).
        drop_path: rate of stochastic depth in training.
        checkpointing: recompute activations in backward, for less memory.
        channels: of a picture; 0 is the model's own. Any other number is normalised by the
            average of the model's own mean and deviation.
        size: side of the pictures in pixels; 0 is the model's own.

    Source: the timm library.
    """
    if not is_model(name):
        close = difflib.get_close_matches(name, list_models(), n=3, cutoff=0.5)
        if close:
            raise unknown("timm model", name, close)
        raise UserError(f"unknown timm model '{name}'; timm.list_models('*part*') finds names")
    args: dict[str, Any] = {"drop_path_rate": drop_path} if drop_path else {}
    if channels:
        args["in_chans"] = channels
    stock = get_pretrained_cfg(name)
    if size and stock is not None and stock.fixed_input_size:
        args["img_size"] = size
    module = _created(name, pretrained, args)
    if checkpointing:
        module.set_grad_checkpointing()
    return _source(module, channels, size)


def _created(name: str, pretrained: bool, args: dict[str, Any]) -> Any:
    if pretrained:
        warnings.warn(f"pretrained=true fetches '{name}' from timm's model hub", stacklevel=4)
    try:
        return create_model(name, pretrained=pretrained, num_classes=0, **args)
    except TypeError as error:
        raise UserError(f"timm model '{name}' does not take {', '.join(args)}: {error}") from error
    except Exception as error:
        if not pretrained:
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DmltkError(
            f"the weights of timm model '{name}' cannot be fetched ({reason});"
            " leave pretrained out and give weights=FILE"
        ) from error


def _source(module: Any, channels: int, size: int) -> Source:
    card = module.pretrained_cfg
    channels = channels or card["input_size"][0]
    side = size or card["input_size"][-1]
    pooled = _Pooled(module)
    picture = torch.rand(1, channels, side, side, generator=torch.Generator())
    with evaluating(module):
        features = module.forward_features(picture)
        own = pooled(features, "avg")
    plain = (
        isinstance(features, Tensor)
        and features.ndim == 4
        and features.shape[:2] == own.shape
        and torch.allclose(plain_pool(features, "avg"), own, atol=1e-5)
    )
    classifier = card.get("classifier") or ()
    names = (classifier,) if isinstance(classifier, str) else classifier
    return Source(
        module,
        mean=_fitted(card["mean"], channels),
        std=_fitted(card["std"], channels),
        size=side,
        features=module.forward_features,
        pooled=pooled,
        num_features=own.shape[1],
        pools=("avg", "max", "avgmax") if plain else ("avg",),
        classifier=tuple(_whole(name) for name in names),
    )


def _fitted(numbers: Sequence[float], channels: int) -> tuple[float, ...]:
    """A number per channel; their average for each, where there are more or fewer channels."""
    if len(numbers) == channels:
        return tuple(numbers)
    return (sum(numbers) / len(numbers),) * channels


def _whole(classifier: str) -> str:
    """The classifier with the batch norm that some families (levit, repvit) put into it."""
    return classifier.removesuffix(".linear").removesuffix(".l")


class _Pooled:
    """The model's own pooling for `avg`, the plain one for the others."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, features: Any, pool: str) -> Tensor:
        if pool == "avg":
            own: Tensor = self.module.forward_head(features, pre_logits=True)
            return own
        return plain_pool(features, pool)
