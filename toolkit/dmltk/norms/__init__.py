"""Norm strategies: routes through private sets of normaliser tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dmltk import registry
from dmltk.norms.routed import RoutedEmbedder, RouteView
from dmltk.norms.strategies import Dual, KWay, NormStrategy, Shared

if TYPE_CHECKING:
    from torch import nn

    from dmltk.spec import Spec

__all__ = [
    "Dual",
    "KWay",
    "NormStrategy",
    "RouteView",
    "RoutedEmbedder",
    "Shared",
    "apply",
    "build",
]


def build(
    spec: str | Spec, *, context: Mapping[str, Any] | None = None, **args: Any
) -> NormStrategy:
    """Build a norm strategy.

    Args:
        spec: its name with arguments, such as `kway:layers=ln`.
        context: what the toolkit offers: seed.
        args: further arguments of the strategy.
    """
    strategy: NormStrategy = registry.build("norms", spec, context=context, **args)
    return strategy


def apply(
    spec: str | Spec, embedder: nn.Module, routes: Sequence[str], **args: Any
) -> RoutedEmbedder:
    """Give an embedder routes.

    Args:
        spec: the strategy's name with arguments.
        embedder: an embedder without routes; it is used, not copied.
        routes: names of routes; `main` is always one.
        args: further arguments of the strategy.
    """
    return build(spec, **args).apply(embedder, routes)
