"""Training methods as data: structure, checks, composition, the named ones. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmltk import registry
from dmltk.pipelines.check import check, groups, order
from dmltk.pipelines.compose import compose, resolve
from dmltk.pipelines.structure import (
    Branch,
    Head,
    Of,
    Pipeline,
    Ramp,
    Term,
    from_dict,
    from_yaml,
    load,
)

__all__ = [
    "Branch",
    "Head",
    "Of",
    "Pipeline",
    "Ramp",
    "Term",
    "build",
    "check",
    "compose",
    "from_dict",
    "from_yaml",
    "groups",
    "load",
    "order",
    "resolve",
]


def build(spec: str, *, context: Mapping[str, Any] | None = None, **args: Any) -> Pipeline:
    """A named pipeline; the same as ``dmltk.build("pipelines", …)``."""
    return registry.build("pipelines", spec, context=context, **args)
