"""The one grammar: ``name[:arg,…]``, text that names a registered thing with its arguments.

``key=value`` gives an argument by name, the first one may be positional, ``name(args)``
nests, ``[a,b]`` is a list and ``[a=1,b=2]`` a mapping, ``'…'`` quotes (a quote inside is
doubled). A dotted head takes an attribute (``mypkg.attacks:Mine,steps=3``). Values stay text
until something is built, so ``8/255`` survives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from dmltk.errors import UserError

Value: TypeAlias = Union[str, list["Value"], "Spec"]

_HEAD = re.compile(r"[A-Za-z_][\w@./-]*")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*")
_KEY = re.compile(r"\s*([A-Za-z_][\w@.-]*)\s*=")
_BARE = re.compile(r"[^,()\[\]']*")
_MUST_QUOTE = re.compile(r"[,()\[\]'=]|^\s|\s$|^$")


@dataclass(frozen=True)
class Spec:
    """A name and its arguments, still text.

    Args:
        name: a registered name, ``distribution/name``, or ``package.module:Attribute``.
        args: at most one positional value.
        kwargs: values by name; a value is text, a list of values, or a nested Spec.
    """

    name: str
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        inner = _join(self)
        separator = "," if is_import(self.name) else ":"
        return f"{self.name}{separator}{inner}" if inner else self.name


def is_import(name: str) -> bool:
    """Whether a spec's name is an import path rather than a registered name."""
    module, colon, _ = name.partition(":")
    return bool(colon) and "." in module and "/" not in module


def parse(text: str) -> Spec:
    """Read a spec.

    Raises:
        UserError: where the text does not follow the grammar, with the place.
    """
    return _Reader(text).spec()


def as_spec(spec: str | Spec) -> Spec:
    """A Spec from text or from a Spec."""
    return parse(spec) if isinstance(spec, str) else spec


def imports(value: Value) -> Iterator[str]:
    """Every import path that a spec (or its text, or a list of them) would have loaded."""
    if isinstance(value, str):
        try:
            value = parse(value)
        except UserError:
            return
    if isinstance(value, list):
        for item in value:
            yield from imports(item)
        return
    if is_import(value.name):
        yield value.name
    for item in (*value.args, *value.kwargs.values()):
        yield from imports(item)


def _join(spec: Spec) -> str:
    keyed = (f"{key}={text(value)}" for key, value in spec.kwargs.items())
    return ",".join([*(text(value) for value in spec.args), *keyed])


def text(value: object) -> str:
    """A value as it is written inside a spec."""
    if isinstance(value, Spec):
        return f"{value.name}({_join(value)})"
    if isinstance(value, dict):
        return text([f"{key}={item}" for key, item in value.items()])
    if isinstance(value, list | tuple):
        return "[" + ",".join(text(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    written = str(value)
    return "'" + written.replace("'", "''") + "'" if _MUST_QUOTE.search(written) else written


class _Reader:
    """A cursor over one spec's text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    def fail(self, expected: str) -> UserError:
        return UserError(
            f"cannot read '{self.source}': {expected} expected at character {self.at + 1}"
            f" ('{self.source[self.at : self.at + 12] or 'the end'}'); the grammar is"
            " name:key=value,… with name(key=value) nested, [a,b] a list and '…' quoted"
        )

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.source, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match.group(match.re.groups)

    def spec(self) -> Spec:
        self.take(re.compile(r"\s*"))
        name = self.take(_HEAD)
        if not name:
            raise self.fail("a name")
        after = ":"
        if "." in name and "/" not in name and self.peek() == ":":
            self.at += 1
            attribute = self.take(_ATTRIBUTE)
            if not attribute:
                raise self.fail("an attribute of the module")
            name, after = f"{name}:{attribute}", ","
        self.take(re.compile(r"\s*"))
        if not self.peek():
            return Spec(name)
        if self.peek() == "(":
            nested = self.nested(name)
            if self.source[self.at :].strip():
                raise self.fail("the end")
            return nested
        if self.peek() != after:
            raise self.fail(f"'{after}', '(' or the end")
        self.at += 1
        return self.arguments(name, "")

    def arguments(self, name: str, end: str) -> Spec:
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        while self.peek() != end or not end:
            key = self.take(_KEY)
            if not key and (args or kwargs):
                raise self.fail("key=value (only the first argument may be positional)")
            if key in kwargs:
                raise self.fail(f"'{key}' only once; another argument")
            value = self.value()
            if key:
                kwargs[key] = value
            else:
                args.append(value)
            if self.peek() == end:
                break
            if self.peek() != ",":
                raise self.fail(f"',' or {repr(end) if end else 'the end'}")
            self.at += 1
        return Spec(name, tuple(args), kwargs)

    def nested(self, name: str) -> Spec:
        self.at += 1
        inner = self.arguments(name, ")")
        self.at += 1
        return inner

    def value(self) -> Value:
        self.take(re.compile(r"\s*"))
        if self.peek() == "[":
            result: Value = self.items()
        elif self.peek() == "'":
            result = self.quoted()
        else:
            bare = self.take(re.compile(f"({_BARE.pattern})")).strip()
            if not bare:
                raise self.fail("a value (an empty one is written '')")
            result = self.nested(bare) if self.peek() == "(" else bare
        self.take(re.compile(r"\s*"))
        return result

    def items(self) -> list[Value]:
        self.at += 1
        found: list[Value] = []
        self.take(re.compile(r"\s*"))
        while self.peek() != "]":
            found.append(self.value())
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "]":
                raise self.fail("',' or ']'")
        self.at += 1
        return found

    def quoted(self) -> str:
        match = re.compile(r"'((?:[^']|'')*)'").match(self.source, self.at)
        if match is None:
            raise self.fail("a closing quote")
        self.at = match.end()
        return match.group(1).replace("''", "'")
