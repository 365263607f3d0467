"""Kinds, entry points and factories: every part, built in or not, is found in one way.

Entry points are read from metadata; a thing is imported when it is built or shown. A plug-in
that fails to import stops nobody else.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, get_type_hints

from dmltk import convert
from dmltk.errors import DmltkError, PluginError, UserError, unknown
from dmltk.spec import Spec, as_spec, is_import

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
_WRAPPERS = {"models": "dmltk.models:wrap"}
_ELSEWHERE = {
    ("attacks", "torchattacks"): "dmltk-torchattacks",
    ("models", "onnx"): "dmltk-onnx",
    ("models", "transformers"): "dmltk-transformers",
}
"""Names that distributions of this project register, for who has not installed them."""
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
            factory = _attribute(self.target, here=self.distribution == IMPORT)
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


def resolve(kind: str, name: str) -> Entry:
    """The entry that a short or full name means.

    Raises:
        UserError: unknown, disabled, or claimed by two distributions.
    """
    kind = plural(kind)
    if is_import(name):
        return Entry(kind, name, name, IMPORT)
    key = "full_name" if "/" in name else "name"
    claims = [entry for entry in entries(kind) if getattr(entry, key) == name]
    usable = [entry for entry in claims if not entry.disabled]
    if claims and not usable:
        raise UserError(f"{singular(kind)} '{name}' is switched off by DMLTK_PLUGINS")
    if not usable and (kind, name) in _ELSEWHERE:
        own = _ELSEWHERE[kind, name]
        raise UserError(f"{singular(kind)} '{name}' comes with {own}: run pip install {own} first")
    if not usable:
        raise unknown(singular(kind), name, available(kind))
    if len(usable) > 1 and usable[0].distribution != HOME:
        both = " or ".join(f"'{entry.full_name}'" for entry in usable)
        raise UserError(f"{singular(kind)} '{name}' is claimed twice: write {both}")
    return usable[0]


def factory(kind: str, name: str) -> Any:
    """The factory behind a name, with what the toolkit adds to every factory of its kind."""
    loaded = resolve(kind, name).load()
    wrapper = _WRAPPERS.get(plural(kind))
    return _attribute(wrapper)(loaded) if wrapper else loaded


def signature(factory: Any, given: Mapping[str, Any] | None = None) -> inspect.Signature:
    """A factory's parameters with resolved annotations.

    Args:
        factory: a class, a function, or an object with ``signature_for(given)``.
        given: the arguments given, for factories whose parameters depend on them.

    Raises:
        PluginError: where it takes ``*args`` or ``**kwargs``.
    """
    if hasattr(factory, "signature_for"):
        return factory.signature_for(given or {})
    found = inspect.signature(factory)
    target = factory.__init__ if inspect.isclass(factory) else factory
    try:
        hints = get_type_hints(target, include_extras=True)
    except NameError:
        hints = dict.fromkeys(found.parameters, Any)
    parameters = []
    inherited = inspect.isclass(factory) and "__init__" not in vars(factory)
    for name, parameter in found.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if inherited:
                continue
            raise PluginError(f"{factory!r} takes *args or **kwargs: name its parameters")
        parameters.append(parameter.replace(annotation=hints.get(name, parameter.annotation)))
    return found.replace(parameters=parameters)


def build(
    kind: str, spec: str | Spec, /, *, context: Mapping[str, Any] | None = None, **args: Any
) -> Any:
    """Build a registered thing.

    Args:
        kind: singular or plural.
        spec: its name with arguments.
        context: what the toolkit offers; passed where a parameter of that name is not given.
        args: further arguments; they must exist in the factory's signature.

    Raises:
        UserError: unknown name or argument, a value out of range, an argument given twice.
        PluginError: where the thing cannot be imported.
    """
    spec = as_spec(spec)
    label = f"{singular(plural(kind))} '{spec.name}'"
    maker = factory(kind, spec.name)
    asked = _bind(maker, spec, args, label)
    offered = context or {}
    names = signature(maker, asked).parameters
    asked |= {name: offered[name] for name in names if name in offered and name not in asked}

    def nested(inner: str, value: str | Spec) -> Any:
        return build(inner, value, context=offered)

    converted = convert.arguments(signature(maker, asked), asked, label, nested)
    try:
        return maker(**converted)
    except DmltkError:
        raise
    except Exception as error:
        raise DmltkError(f"{label} cannot be built: {type(error).__name__}: {error}") from error


def given(kind: str, spec: str | Spec) -> dict[str, Any]:
    """A spec's arguments by parameter name, the positional one too; still text.

    Raises:
        UserError: unknown name, or an argument given twice.
    """
    spec = as_spec(spec)
    return _bind(factory(kind, spec.name), spec, {}, f"{singular(plural(kind))} '{spec.name}'")


def _bind(maker: Any, spec: Spec, args: Mapping[str, Any], label: str) -> dict[str, Any]:
    given: dict[str, Any] = dict(spec.kwargs)
    if spec.args:
        first = next(iter(signature(maker).parameters), None)
        if first is None:
            raise UserError(f"{label} takes no argument, got '{spec.args[0]}'")
        if first in given:
            raise UserError(f"{label}: '{first}' is given twice, as first argument and by name")
        given = {first: spec.args[0], **given}
    for name, value in args.items():
        if name in given:
            raise UserError(f"{label}: '{name}' is given twice, in the spec and as an argument")
        given[name] = value
    return given


def _attribute(target: str, here: bool = False) -> Any:
    module, _, path = target.partition(":")
    if here and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return typing.cast(Any, value)
