"""CSV files of the user's, read and checked line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from csv import Error, reader
from pathlib import Path
from typing import TypeVar

from dmltk.data.files import some
from dmltk.errors import UserError

Line = TypeVar("Line")


def table(
    file: Path,
    needed: Sequence[str],
    optional: Sequence[str],
    line: Callable[[int, Mapping[str, str]], Line],
) -> tuple[list[str], list[Line]]:
    """The columns and the lines of a list.

    Args:
        file: UTF-8, commas, the first line names the columns.
        needed: columns that must be there and filled.
        optional: further columns that mean something.
        line: makes one of its number and what its columns say; ValueError says what is wrong.

    Raises:
        UserError: no UTF-8, a column that is missing or named twice, no lines, or some that
            cannot be used, all of them counted and the first ten named.
    """
    found = rows(file)
    at, first = next(found, (1, []))
    header = [name.strip().lower() for name in first]
    for name in needed:
        if name not in header:
            further = f", and may name {' and '.join(optional)}" if optional else ""
            raise UserError(
                f"{file}, line {at} has no column '{name}' (it reads: {','.join(first)}); "
                f"it must name the columns {', '.join(needed[:-1])} and {needed[-1]}{further}"
            )
    twice = [name for name in (*needed, *optional) if header.count(name) > 1]
    if twice:
        raise UserError(f"{file}, line {at} names the column '{twice[0]}' twice; rename one")
    lines: list[Line] = []
    faults: list[str] = []
    for place, fields in found:
        try:
            lines.append(line(place, _said(header, needed, fields)))
        except ValueError as error:
            faults.append(f"line {place} ({error})")
    if faults:
        raise UserError(f"{file} cannot be used: {some(faults)}; mend these lines")
    if not lines:
        raise UserError(f"{file} names no pictures; they must stand in lines after the first")
    return header, lines


def rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of every line that is not blank."""
    with file.open(newline="", encoding="utf-8-sig") as opened:
        source = reader(opened, strict=True)
        try:
            for fields in source:
                if any(field.strip() for field in fields):
                    yield source.line_num, fields
        except Error as error:
            raise UserError(f"{file}, line {source.line_num} is no CSV: {error}; mend it") from None
        except UnicodeDecodeError:
            raise UserError(f"{file} is not UTF-8 text; save it as UTF-8") from None


def _said(header: Sequence[str], needed: Sequence[str], fields: Sequence[str]) -> Mapping[str, str]:
    if len(fields) != len(header):
        raise ValueError(f"{len(fields)} fields for {len(header)} columns")
    said = dict(zip(header, (field.strip() for field in fields), strict=True))
    for name in needed:
        if not said[name]:
            raise ValueError(f"no {name}")
    return said
