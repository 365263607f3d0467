"""Warnings of a run: shown as they come, and kept for its results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Notes:
    """What was warned of, in order; called with a warning to add one.

    Args:
        warn: told each.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self.kept: list[str] = []

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        self.kept.append(str(message))
        self.warn(str(message))


@contextmanager
def noted(warn: Callable[[str], None]) -> Iterator[Notes]:
    """Every warning within, each of the same place once, goes to the notes.

    Args:
        warn: told each warning.
    """
    notes = Notes(warn)
    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = notes
        yield notes
