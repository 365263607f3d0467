"""A registered thing under check."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dmltk import registry
from dmltk.spec import Spec

__all__ = ["CONTEXT", "Part", "Skip"]

CLASSES, DIM, SIZE = 4, 12, 16
CONTEXT: Mapping[str, Any] = {
    "eps": 8 / 255,
    "targets_from": "batch",
    "size": SIZE,
    "dim": DIM,
    "seed": 0,
    "num_classes": CLASSES,
    "embedding_size": DIM,
    "device": torch.device("cpu"),
}
"""What the kit offers to factories, as a run would."""


class Skip(Exception):
    """A check that does not apply; its text says why."""


@dataclass(frozen=True)
class Part:
    """A registered thing under check.

    Args:
        kind: plural, as the registry spells it.
        spec: its name with arguments.
    """

    kind: str
    spec: Spec

    @classmethod
    def of(cls, text: str) -> Part:
        """The part that ``kind:spec`` names, such as ``attack:stax,steps=2``.

        Raises:
            UserError: no such kind, or no spec.
        """
        return cls(*registry.named(text))

    def __str__(self) -> str:
        return f"{registry.singular(self.kind)}:{self.spec}"

    def build(self, **context: Any) -> Any:
        """Build it, some of what the kit offers replaced."""
        return registry.build(self.kind, self.spec, context={**CONTEXT, **context})

    def given(self, **arguments: Any) -> Any:
        """Build it with other values of arguments that it has.

        Raises:
            Skip: it has no such argument.
        """
        for name in arguments:
            if name not in self.parameters:
                raise Skip(f"it has no argument '{name}'")
        first = next(iter(self.parameters), "")
        kept = dict(zip([first], self.spec.args, strict=False)) | dict(self.spec.kwargs)
        left = {name: value for name, value in kept.items() if name not in arguments}
        spec = Spec(self.spec.name, (), left)
        return registry.build(self.kind, spec, context=CONTEXT, **arguments)

    @property
    def factory(self) -> Any:
        """What the registry holds."""
        return registry.factory(self.kind, self.spec.name)

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The factory's parameters, those that hang on what is given too."""
        given = registry.given(self.kind, self.spec)
        return registry.signature(self.factory, given).parameters
