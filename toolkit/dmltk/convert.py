"""The one converter: text and Python values to what a factory's annotations ask for."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
import types
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from dmltk.errors import UserError, unknown
from dmltk.spec import Spec, text

_SCALARS = (bool, int, float, str, type(None))
Build = Callable[[str, Any], Any]
Structure = TypeVar("Structure", bound=msgspec.Struct)


def arguments(
    signature: inspect.Signature, given: Mapping[str, Any], where: str, build: Build
) -> dict[str, Any]:
    """Convert the arguments given for a signature; unknown keys are refused.

    Args:
        signature: with resolved annotations.
        given: values by parameter name: text, or Python values.
        where: what is being built, for the errors.
        build: called with a kind and a spec where an annotation is a kind's protocol.

    Raises:
        UserError: naming the key, the value and what would be allowed.
    """
    for key in given:
        if key not in signature.parameters:
            raise unknown("argument", key, signature.parameters, where)
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in given
    ]
    if missing:
        raise UserError(f"{where} needs {missing[0]}: write {missing[0]}=…")
    return {
        key: convert(value, annotation_of(signature.parameters[key]), f"{where}: {key}", build)
        for key, value in given.items()
    }


def structure(value: Any, cls: type[Structure], where: str) -> Structure:
    """A mapping (of text, as YAML is read) to a frozen Struct; unknown keys are refused.

    Raises:
        UserError: naming the path, the allowed keys and the nearest match.
    """
    return msgspec.convert(_checked(value, cls, where), cls)


def same(saved: msgspec.Struct, asked: msgspec.Struct, what: str) -> None:
    """Refuse to go on with something under other settings than it was begun with.

    Args:
        saved: its settings.
        asked: those wanted now, of the same class.
        what: names it in the message, such as "the run in runs/st".

    Raises:
        UserError: names the first setting that differs.
    """
    for field in msgspec.structs.fields(saved):
        was, now = getattr(saved, field.name), getattr(asked, field.name)
        if was != now:
            raise UserError(
                f"--resume goes on with {what}, whose {field.name} is {_short(was)}, not"
                f" {_short(now)}: leave the flag out, or use another --out"
            )


def _short(value: Any) -> str:
    return "another" if isinstance(value, msgspec.Struct) else f"'{value}'"


def _checked(value: Any, annotation: Any, where: str) -> Any:
    """The same value with every leaf converted; structs become mappings of checked fields."""
    structs = [m for m in _members(annotation) if _is_struct(m)]
    if structs and (isinstance(value, dict) or value == ""):
        fields = {field.encode_name: field for field in msgspec.structs.fields(structs[0])}
        for key in value or {}:
            if key not in fields:
                raise unknown("key", key, fields, where)
        for name, field in fields.items():
            if field.required and name not in (value or {}):
                raise UserError(f"{where} lacks the key '{name}'")
        return {
            key: _checked(item, fields[key].type, f"{where}.{key}")
            for key, item in (value or {}).items()
        }
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (list, tuple) and _is_struct(parts[0]):
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}={value!r}: expected a list")
        return [_checked(item, parts[0], f"{where}.{i}") for i, item in enumerate(value)]
    if origin is dict and _is_struct(parts[1]):
        if value != "" and not isinstance(value, dict):
            raise UserError(f"{where}={value!r}: expected a mapping")
        return {
            key: _checked(item, parts[1], f"{where}.{key}") for key, item in (value or {}).items()
        }
    scalars = [m for m in _members(annotation) if not _is_struct(m)]
    if structs and not scalars:
        raise UserError(f"{where}={value!r}: expected a mapping")
    if structs:
        annotation = functools.reduce(operator.or_, scalars)
    return convert(value, annotation, where, _no_build)


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _no_build(kind: str, spec: Any) -> Any:
    raise UserError(f"a {kind} cannot stand here")


def annotation_of(parameter: inspect.Parameter) -> Any:
    """A parameter's annotation; without one, the type of its default."""
    if parameter.annotation is not inspect.Parameter.empty:
        return parameter.annotation
    default = parameter.default
    return type(default) if isinstance(default, bool | int | float | str) else Any


def convert(value: Any, annotation: Any, where: str, build: Build) -> Any:
    """One value to what its annotation asks for; annotations that are no data pass it on."""
    kind = next((k for m in _members(annotation) if (k := getattr(m, "dmltk_kind", None))), None)
    if kind is not None:
        return build(kind, value) if isinstance(value, str | Spec) else value
    if not is_data(annotation):
        return value
    try:
        return msgspec.convert(_prepare(value, annotation), annotation, strict=False)
    except msgspec.ValidationError as error:
        literals = [m for m in _members(annotation) if get_origin(m) is Literal]
        choices = [choice for literal in literals for choice in get_args(literal)]
        if choices and isinstance(value, str):
            raise unknown("value", value, map(str, choices), where) from None
        raise UserError(f"{where}={text(value)}: {_reworded(error)}") from None


def is_data(annotation: Any) -> bool:
    """Whether an annotation is made of scalars, literals, lists, tuples and mappings only."""
    if annotation in _SCALARS or annotation is None:
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_data(get_args(annotation)[0])
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType, list, tuple, dict):
        return all(is_data(part) for part in get_args(annotation) if part is not ...)
    return False


def number(written: str) -> int | float | None:
    """The finite number that a text such as ``8/255``, ``.5/255`` or ``1e-4`` means, or None."""
    cleaned = written.strip()
    try:
        return int(cleaned)
    except ValueError:
        pass
    try:
        if cleaned.count("/") != 1:
            found = float(cleaned)
        else:
            above, below = map(Fraction, cleaned.split("/"))
            found = float(above / below)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _members(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [type(None) if annotation is None else annotation]


def _prepare(value: Any, annotation: Any) -> Any:
    members = _members(annotation)
    if isinstance(value, Spec):
        return text(value)
    if isinstance(value, list | tuple) and not _takes_lists(members):
        value = _mapping(value)
    if isinstance(value, list | tuple):
        inner = _inner(members)
        return [_prepare(item, inner) for item in value]
    if isinstance(value, dict):
        values = next((get_args(m)[1] for m in members if get_origin(m) is dict), str)
        return {key: _prepare(item, values) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if type(None) in members and word in ("none", "null"):
        return None
    if bool in members and word in ("true", "false"):
        return word == "true"
    if int in members or float in members:
        found = number(value)
        words = str in members or any(get_origin(m) is Literal for m in members)
        if found is None and not words:
            raise msgspec.ValidationError("Expected a number such as 3, .1 or 8/255")
        return value if found is None else found
    return value


def _takes_lists(members: list[Any]) -> bool:
    return all(get_origin(member) is not dict for member in members) or any(
        get_origin(member) in (list, tuple) for member in members
    )


def _mapping(items: list[Any] | tuple[Any, ...]) -> dict[str, str]:
    pairs = [str(item).partition("=") for item in items]
    names = [name.strip() for name, _, _ in pairs]
    if not all(equals for _, equals, _ in pairs) or len(set(names)) < len(names):
        raise msgspec.ValidationError("Expected each key once, such as [a=1,b=2]")
    return {name: value for name, (_, _, value) in zip(names, pairs, strict=True)}


def _inner(members: list[Any]) -> Any:
    for member in members:
        if get_origin(member) in (list, tuple) and get_args(member):
            return get_args(member)[0]
    return str


def _reworded(error: msgspec.ValidationError) -> str:
    said = re.sub(r" - at `\$?(.*?)`$", lambda m: f" (at {m[1]})" if m[1] else "", str(error))
    said = said.replace("`", "").replace("str | ", "text or ").replace("Expected", "expected")
    said = said.replace("expected array, got", "expected a list such as [1,2], got")
    return said[:1].lower() + said[1:]
