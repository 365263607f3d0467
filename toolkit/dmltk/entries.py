"""What is registered: kinds, and entry points found in metadata without importing them.

A plug-in that fails to import stops nobody else.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import typing
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from dmltk.errors import PluginError, UserError, unknown
from dmltk.spec import Spec, as_spec

__all__ = [
    "API",
    "HOME",
    "IMPORT",
    "KINDS",
    "SESSION",
    "Entry",
    "attribute",
    "available",
    "check_name",
    "entries",
    "named",
    "plural",
    "register",
    "singular",
]

API = 1
HOME = "dmltk"
SESSION = "session"
IMPORT = "import"
KINDS = [
    "attacks",
    "goals",
    "solvers",
    "augments",
    "norms",
    "losses",
    "pipelines",
    "datasets",
    "models",
    "metrics",
    "protocols",
    "suites",
]
_NAME = re.compile(r"[a-z][a-z0-9_@-]{0,39}")


@dataclass
class Entry:
    """One registered thing: where it comes from, and what became of loading it.

    Args:
        kind: plural, as in :data:`KINDS`.
        name: the short name.
        target: ``module:attribute``, empty for one registered from Python.
        distribution: whose it is.
        version: that distribution's.
    """

    kind: str
    name: str
    target: str
    distribution: str
    version: str = ""
    factory: Any = None
    error: Exception | None = None
    disabled: bool = False

    @property
    def full_name(self) -> str:
        """``distribution/name``, which never clashes."""
        return f"{self.distribution}/{self.name}"

    @property
    def state(self) -> str:
        """``ok``, ``loaded``, ``broken: reason``, ``conflict``, ``disabled`` or ``invalid``."""
        if not _NAME.fullmatch(self.name):
            return "invalid name"
        if self.disabled:
            return "disabled"
        if self.error is not None:
            reason = f"{type(self.error).__name__}: {self.error}"
            return f"broken: {reason} ({self.distribution} {self.version})"
        if len([e for e in entries(self.kind) if e.name == self.name and not e.disabled]) > 1:
            return "conflict" if self.distribution != HOME else "ok"
        return "loaded" if self.factory is not None else "ok"

    def load(self) -> Any:
        """The factory, imported once.

        Raises:
            PluginError: where it cannot be imported, with the reason.
        """
        if self.factory is not None:
            return self.factory
        try:
            factory = attribute(self.target, here=self.distribution == IMPORT)
            if getattr(factory, "dmltk_api", API) > API:
                raise PluginError(
                    f"it needs plug-in API {factory.dmltk_api}, this dmltk has {API}: upgrade dmltk"
                )
        except Exception as error:
            self.error = error
            raise PluginError(
                f"{singular(self.kind)} '{self.full_name}' cannot be loaded"
                f" ({type(error).__name__}: {error}); repair or remove {self.distribution}"
            ) from error
        self.error, self.factory = None, factory
        return factory


def plural(kind: str) -> str:
    """The kind's name as the registry spells it; singular and plural are both taken."""
    found = {singular(k): k for k in KINDS} | {k: k for k in KINDS}
    if kind not in found:
        raise unknown("kind", kind, found)
    return found[kind]


def singular(kind: str) -> str:
    """The kind's name for one thing."""
    return {"losses": "loss"}.get(kind, kind.removesuffix("s"))


def named(text: str) -> tuple[str, Spec]:
    """The kind and the spec of ``kind:spec``, such as ``attack:stax,steps=2``.

    Raises:
        UserError: no such kind, or no spec.
    """
    kind, _, spec = text.partition(":")
    if not spec:
        raise UserError(f"'{text}' names no part: write KIND:NAME, such as attack:stax")
    return plural(kind), as_spec(spec)


def entries(kind: str) -> list[Entry]:
    """All entries of a kind, built in first, then by distribution and name."""
    return _entries(plural(kind))


@cache
def _entries(kind: str) -> list[Entry]:
    allowed = os.environ.get("DMLTK_PLUGINS")
    wanted = None if allowed is None else {part.strip() for part in allowed.split(",")}
    found = {}
    for point, owner, version in _points().get(f"{HOME}.{kind}", []):
        entry = Entry(kind, point.name, point.value, owner, version)
        entry.disabled = wanted is not None and owner != HOME and owner not in wanted
        found[entry.full_name] = entry
    return sorted(found.values(), key=lambda e: (e.distribution != HOME, e.distribution, e.name))


@cache
def _points() -> dict[str, list[tuple[metadata.EntryPoint, str, str]]]:
    """Entry points by group, with their distribution's name and version: one pass over all.

    Of a distribution that is found twice, the first on the path counts.
    """
    found: dict[str, list[tuple[metadata.EntryPoint, str, str]]] = {}
    seen = set()
    for distribution in metadata.distributions():
        points = [p for p in distribution.entry_points if p.group.startswith(f"{HOME}.")]
        if not points:
            continue
        about = distribution.metadata
        name, version = about["Name"] or "unknown", about["Version"] or ""
        if name not in seen:
            seen.add(name)
            for point in points:
                found.setdefault(point.group, []).append((point, name, version))
    return found


def available(kind: str) -> list[str]:
    """Names that can be used now: short ones, full ones where a short one is taken."""
    names: dict[str, list[Entry]] = {}
    for entry in entries(plural(kind)):
        if entry.state in ("ok", "loaded", "conflict"):
            names.setdefault(entry.name, []).append(entry)
    result = []
    for name, claims in names.items():
        plain = claims[0].distribution == HOME or len(claims) == 1
        result += [name] if plain else []
        result += [entry.full_name for entry in claims[1 if plain else 0 :]]
    return sorted(result)


def check_name(kind: str, name: str) -> None:
    """Refuse a name under which nothing new can be registered.

    Raises:
        UserError: where it is malformed or a built-in has it.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"'{name}' cannot be registered: a name matches {_NAME.pattern}")
    if any(e.name == name and e.distribution == HOME for e in entries(kind)):
        raise UserError(f"{singular(plural(kind))} '{name}' is built in: choose another name")


def register(kind: str, name: str, factory: Any) -> None:
    """Register a factory for this process (a package registers by entry point).

    Raises:
        UserError: where the name is malformed or a built-in has it.
    """
    check_name(kind, name)
    known = entries(kind)
    known[:] = [e for e in known if (e.name, e.distribution) != (name, SESSION)]
    known.append(Entry(plural(kind), name, "", SESSION, factory=factory))


def attribute(target: str, here: bool = False) -> Any:
    """What ``module:path`` names.

    Args:
        target: imported.
        here: whether the current folder is on the import path for it.
    """
    module, _, path = target.partition(":")
    if here and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return typing.cast(Any, value)
