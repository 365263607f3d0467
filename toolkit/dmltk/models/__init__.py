"""Embedders, their heads, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dmltk import registry
from dmltk.models.embedder import Embedder, Head
from dmltk.models.factory import ModelFactory, wrap
from dmltk.models.run import card
from dmltk.models.source import Source
from dmltk.models.weights import load, save

if TYPE_CHECKING:
    from dmltk.spec import Spec

__all__ = ["Embedder", "Head", "ModelFactory", "Source", "build", "card", "load", "save", "wrap"]


def build(spec: str | Spec, *, context: Mapping[str, Any] | None = None, **args: Any) -> Embedder:
    """Build an embedder.

    Args:
        spec: its source with arguments, such as `timm:resnet50,dim=128`.
        context: what the toolkit offers: dim, size, seed.
        args: further arguments of the source.
    """
    embedder: Embedder = registry.build("models", spec, context=context, **args)
    return embedder
