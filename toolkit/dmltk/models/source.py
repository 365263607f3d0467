"""What a model source gives: a stock backbone, and how pictures become pooled features."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError

__all__ = ["Pool", "Source", "evaluating", "examined", "plain_pool"]

Pool = Literal["avg", "max", "avgmax"]
PROBE_SIZE = 64


def plain_pool(features: Tensor, pool: str) -> Tensor:
    """Pool a feature map over its places.

    Args:
        features: (N, C, h, w); (N, C) is taken as already averaged.
        pool: `avg`, `max`, or `avgmax`, their sum.

    Returns:
        (N, C).
    """
    if features.ndim == 2 and pool == "avg":
        return features
    if features.ndim != 4:
        raise UserError(
            f"pool={pool} needs a feature map (N,C,h,w), the model gives {tuple(features.shape)}"
        )
    average = features.mean((2, 3))
    if pool == "avg":
        return average
    largest = features.amax((2, 3))
    return largest if pool == "max" else average + largest


@dataclass(frozen=True)
class Source:
    """A stock backbone and how it is used.

    Args:
        module: the backbone, its state dict keys untouched.
        mean: subtracted from pictures in [0, 1], one number per channel.
        std: pictures are divided by it, one number per channel.
        size: side of the pictures the backbone was made for in pixels, None for any.
        features: pictures (N,C,H,W) to what `pooled` takes; None calls the module. A bound method
            or an object that holds the module, so that a copied embedder uses its own copy.
        pooled: features and the name of a pool to (N, num_features); as `features`.
        num_features: length of a pooled feature; 0 is found by a dry pass.
        pools: the pools that `pooled` can do.
        classifier: names of the stock classifier's modules, the only keys of a stock file that may
            be left over.
        start: sets a module's first weights; applied to every head. None: torch's own.
    """

    module: nn.Module
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    size: int | None = None
    features: Callable[[Tensor], Any] | None = None
    pooled: Callable[[Any, str], Tensor] = plain_pool
    num_features: int = 0
    pools: tuple[str, ...] = ("avg", "max", "avgmax")
    classifier: tuple[str, ...] = ()
    start: Callable[[nn.Module], None] | None = None

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise UserError(
                f"a model source's mean has {len(self.mean)} channels and its std {len(self.std)}"
            )
        for part in (self.features, self.pooled):
            held = inspect.getclosurevars(part).nonlocals if inspect.isfunction(part) else {}
            if any(isinstance(value, nn.Module) for value in held.values()):
                raise UserError(
                    "a model source's features and pooled must not be closures over the module"
                    " (a copied embedder would use the old one): give bound methods"
                )

    def picked_features(self, pictures: Tensor, output: str) -> Any:
        """Features of normalised pictures, one part of them where `output` names it."""
        found = self.module(pictures) if self.features is None else self.features(pictures)
        return _picked(found, output) if output else found


def _picked(found: Any, output: str) -> Any:
    """The part of a dict, tuple or list that `output` names."""
    if isinstance(found, dict) and output in found:
        return found[output]
    is_row = isinstance(found, tuple | list)
    if is_row and output.lstrip("-").isdigit() and -len(found) <= int(output) < len(found):
        return found[int(output)]
    if hasattr(found, output) and is_row:
        return getattr(found, output)
    raise UserError(f"output={output} is not in what the model returns: {shown(found)}")


def shown(found: Any) -> str:
    """What a model returned, for an error."""
    if isinstance(found, dict):
        return f"a dict of {', '.join(map(str, found))}"
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}"
    if isinstance(found, Tensor):
        return f"a tensor of shape {tuple(found.shape)}"
    return f"a {type(found).__name__}"


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; each sub-module's own mode is restored."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


def bare(module: nn.Module) -> Source:
    """A Source for a module that takes pictures in [0, 1] and returns features itself."""
    convolutions = (part for part in module.modules() if isinstance(part, nn.Conv2d))
    first = next(convolutions, None)
    channels = 3 if first is None else first.in_channels
    return Source(module, mean=(0.0,) * channels, std=(1.0,) * channels)


def dtype_of(module: nn.Module) -> torch.dtype:
    """The floating type a module computes in."""
    tensors = chain(module.parameters(), module.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)


def device_of(module: nn.Module) -> torch.device:
    """Where a module's tensors are."""
    tensors = chain(module.parameters(), module.buffers())
    return next((t.device for t in tensors), torch.device("cpu"))


def examined(source: Source, output: str = "") -> Source:
    """The source with `num_features` known, by one dry pass where it is not.

    Raises:
        UserError: the model returns something that cannot be pooled.
        DmltkError: the model cannot take a picture of its size.
    """
    if source.num_features:
        return source
    size = source.size or PROBE_SIZE
    shape = (1, len(source.mean), size, size)
    picture = torch.full(shape, 0.5, device=device_of(source.module), dtype=dtype_of(source.module))
    with evaluating(source.module):
        try:
            found = source.picked_features(picture, output)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            raise DmltkError(
                f"the model cannot take a picture of {tuple(picture.shape[1:])}"
                f" ({str(error).splitlines()[0] if str(error) else type(error).__name__});"
                " give its own size with size=…"
            ) from error
        pooled = pooled_by(source, found, "avg")
    return replace(source, num_features=pooled.shape[1])


def pooled_by(source: Source, found: Any, pool: str) -> Tensor:
    """Pooled features; what cannot be pooled is named.

    Raises:
        UserError: the model returns no tensor, or one of a shape that cannot be pooled.
    """
    if source.pooled is plain_pool and not isinstance(found, Tensor):
        raise UserError(f"the model returns {shown(found)}, not a tensor: pick with output=…")
    return source.pooled(found, pool)
