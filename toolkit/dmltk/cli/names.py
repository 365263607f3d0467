"""Completion of registered names, read from metadata alone."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from dmltk.entries import KINDS, available


class Named(click.ParamType):
    """Text that names a registered thing; completes its names.

    Args:
        kind: whose names.
    """

    name = "spec"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names of the kind that begin so."""
        names: list[Any] = available(self.kind)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class Kind(click.ParamType):
    """A kind's name, singular or plural; completes them."""

    name = "kind"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Kinds that begin so."""
        return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]
