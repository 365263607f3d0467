"""Attacks, defences and honest robustness figures for deep metric learning.

Nothing heavy is imported here: names are looked up when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "build": "dmltk.registry",
    "available": "dmltk.registry",
    "register": "dmltk.registry",
    "describe": "dmltk.description",
    "parse": "dmltk.spec",
    "Spec": "dmltk.spec",
    "Batch": "dmltk.batch",
    "Reference": "dmltk.batch",
    "DmltkError": "dmltk.errors",
    "PluginError": "dmltk.errors",
    "UserError": "dmltk.errors",
}
_PARTS = [
    "attacks",
    "data",
    "evaluation",
    "losses",
    "models",
    "norms",
    "pipelines",
    "report",
    "training",
]
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    if name in _PARTS:
        return importlib.import_module(f"dmltk.{name}")
    raise AttributeError(f"module 'dmltk' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, *_PARTS]
