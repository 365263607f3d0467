"""What goes wrong, in one sentence: what, where, what to do.

A :class:`UserError` is something the user can mend (exit status 2); any other
:class:`DmltkError` is a failure of the work itself (exit status 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DmltkError(Exception):
    """A failure that is told in one sentence, without a traceback."""


class UserError(DmltkError):
    """Something asked for that cannot be done as asked; refused before work starts."""


class PluginError(DmltkError):
    """A registered part that cannot be loaded or used."""


def unknown(what: str, name: str, allowed: Iterable[str], where: str = "") -> UserError:
    """The error for a name that is not among `allowed`, with the nearest one that is."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    known = f" (known: {', '.join(names)})" if names else " (none is known)"
    place = f" in {where}" if where else ""
    return UserError(f"unknown {what} '{name}'{place}{hint}{known}")
