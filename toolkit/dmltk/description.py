"""What a registered thing is, for people: its identity, text and parameters; imports it."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from dmltk import registry
from dmltk.source import docstring, first_line, summary
from dmltk.spec import text


@dataclass(frozen=True)
class Parameter:
    """One argument of a factory, as ``dmltk show`` prints it."""

    name: str
    type: str
    default: str
    range: str
    meaning: str


@dataclass(frozen=True)
class Description:
    """A registered thing: its identity, what it is, where it is from, what it takes."""

    kind: str
    name: str
    distribution: str
    version: str
    summary: str
    text: str
    source: str
    parameters: list[Parameter]
    facts: dict[str, str] = field(default_factory=dict)


def describe(kind: str, name: str, given: Mapping[str, Any] | None = None) -> Description:
    """Everything about a registered thing; imports it.

    Args:
        kind: singular or plural.
        name: short or full.
        given: arguments on which the parameters may depend (an attack's goal or solver).
    """
    entry = registry.resolve(kind, name)
    factory = registry.factory(kind, name)
    document = inspect.getdoc(factory) or ""
    if entry.target and (written := docstring(entry.target)):
        document = inspect.cleandoc(written)
    meanings = {**_meanings(inspect.getdoc(factory) or ""), **_meanings(document)}
    parameters = [
        _parameter(parameter, meanings.get(parameter.name, ""))
        for parameter in registry.signature(factory, given).parameters.values()
    ]
    source = re.search(r"^Sources?:\s*(.+?)(?=\n\s*\n|\Z)", document, re.M | re.S)
    return Description(
        entry.kind,
        entry.name,
        entry.distribution,
        entry.version,
        first_line(document) or summary(entry),
        document,
        " ".join(source[1].split()) if source else "",
        parameters,
        dict(getattr(factory, "facts", {})),
    )


def _parameter(parameter: inspect.Parameter, meaning: str) -> Parameter:
    empty = parameter.default is inspect.Parameter.empty
    annotation = registry.convert.annotation_of(parameter)
    shown = "required" if empty else text(parameter.default)
    meaning = meaning or _described(annotation)
    return Parameter(parameter.name, _type(annotation), shown, _range(annotation), meaning)


def _described(annotation: Any) -> str:
    """The description that an annotation carries."""
    metas = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((m.description for m in metas if isinstance(m, msgspec.Meta) and m.description), "")


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if (kind := getattr(annotation, "dmltk_kind", None)) is not None:
        return f"{registry.singular(kind)} spec"
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(str(value) for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        return " | ".join(_type(part) for part in get_args(annotation))
    if origin is not None:
        inner = ", ".join(_type(part) for part in get_args(annotation) if part is not ...)
        return f"{origin.__name__}[{inner}]"
    names = {type(None): "none", Any: "any", str: "text"}
    return names.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _range(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType, list, tuple):
        return ", ".join(filter(None, (_range(part) for part in get_args(annotation))))
    if get_origin(annotation) is not Annotated:
        return ""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {bound:g}"
        for meta in get_args(annotation)[1:]
        if isinstance(meta, msgspec.Meta)
        for key, sign in signs.items()
        if (bound := getattr(meta, key)) is not None
    ]
    return ", ".join([*bounds, *filter(None, [_range(get_args(annotation)[0])])])


def _meanings(document: str) -> dict[str, str]:
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", document, re.M)
    found: dict[str, str] = {}
    for line in (section[1] if section else "").splitlines():
        match = re.match(r"    (\w+)(?: \([^)]*\))?: (.+)", line)
        if match:
            last = match[1]
            found[last] = match[2].strip()
        elif found and line.strip():
            found[last] += " " + line.strip()
    return found
