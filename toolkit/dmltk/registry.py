"""Factories by name, and things built from them: built in or not, in one way.

A thing is imported when it is built or shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from dmltk import convert
from dmltk.entries import (
    HOME,
    IMPORT,
    KINDS,
    SESSION,
    Entry,
    attribute,
    available,
    check_name,
    entries,
    named,
    plural,
    register,
    singular,
)
from dmltk.errors import DmltkError, PluginError, UserError, unknown
from dmltk.spec import Spec, as_spec, is_import

__all__ = [
    "HOME",
    "KINDS",
    "SESSION",
    "Entry",
    "available",
    "build",
    "check_name",
    "entries",
    "factory",
    "given",
    "named",
    "plural",
    "register",
    "resolve",
    "signature",
    "singular",
]

_WRAPPERS = {"models": "dmltk.models:wrap"}
_ELSEWHERE = {
    ("attacks", "torchattacks"): "dmltk-torchattacks",
    ("models", "onnx"): "dmltk-onnx",
    ("models", "transformers"): "dmltk-transformers",
}
"""Names that distributions of this project register, for who has not installed them."""


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
    return attribute(wrapper)(loaded) if wrapper else loaded


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
