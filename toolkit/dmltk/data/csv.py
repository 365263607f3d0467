"""A data set from a list of the user's: a CSV file that names pictures and their labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from dmltk.data.division import PARTS, divide
from dmltk.data.files import Box, Files, check, check_apart, fingerprint
from dmltk.data.split import Dataset, number
from dmltk.data.table import table
from dmltk.errors import UserError

NEEDED = ("path", "label")
FURTHER = ("split", "box")
WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,999})")


@dataclass(frozen=True)
class Line:
    """One picture of a list: its line number and what the known columns say."""

    number: int
    path: str
    label: str
    split: str
    box: Box | None


def csv(
    path: str,
    *,
    root: str = "",
    size: Annotated[int, Meta(ge=8)] = 64,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Pictures of your own, named in a CSV file with the columns path and label.

    Further columns: split (train, val and test, or query and gallery in the place of test;
    without it the first half of the classes trains, the second half tests) and box (the part of
    the picture that counts, as `left top right bottom` in pixels of the upright picture; empty
    for all of it). Others are ignored, and named in the card. Queries are looked for in the
    gallery alone; pictures of test are both. Labels that are all whole numbers are ordered as
    numbers. Every picture is decoded once at the start, and all that is wrong is told by line.

    Args:
        path: the file: UTF-8, commas, the first line names the columns.
        root: the folder that the paths start from; empty for that of the file.
        size: height and width: the shorter side is brought to it, the middle cut out.
        val: share of the training classes, the last ones, kept for validation.

    Raises:
        UserError: the file, a column or a picture is missing, or lines cannot be used.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"no file '{path}'; give a CSV file with the columns path and label")
    header, lines = table(file, NEEDED, FURTHER, line)
    start = Path(root).expanduser() if root else file.parent
    paths = [start / line.path for line in lines]
    boxes = [line.box for line in lines]
    parts = [line.split for line in lines]
    called = [f"line {line.number} '{line.path}'" for line in lines]
    check_apart(paths, called, parts, boxes)
    marks = check(paths, file, called, boxes)
    written = [line.label for line in lines]
    whole = all(WHOLE.fullmatch(label) for label in written)
    labels, names = number([int(label) for label in written] if whole else written)
    told = [f"{line.path}\0{line.label}\0{line.split}\0{line.box}" for line in lines]
    card = {
        "name": file.stem,
        "size": size,
        "licence": "the user's own",
        "credits": [],
        "sha256": fingerprint(told, marks),
        "skipped": {},
        "ignored_columns": [name for name in header if name not in (*NEEDED, *FURTHER)],
    }
    return divide(
        Files(paths, size, boxes),
        labels,
        names,
        val=val,
        card=card,
        parts=parts if "split" in header else None,
    )


def line(place: int, said: Mapping[str, str]) -> Line:
    """One line, checked.

    Raises:
        ValueError: saying what is wrong with it.
    """
    split = said.get("split", "").lower()
    if "split" in said and split not in PARTS:
        raise ValueError(f"split '{said['split']}' is none of {', '.join(PARTS)}")
    return Line(place, said["path"], said["label"], split, box(said.get("box", "")))


def box(written: str) -> Box | None:
    """The four numbers of a box, or None for an empty text.

    Raises:
        ValueError: it is not `left top right bottom` with something in between.
    """
    if not written:
        return None
    numbers = [int(word) for word in written.split() if word.isdecimal()]
    if len(numbers) != 4 or len(written.split()) != 4:
        raise ValueError(f"box '{written}' is not 'left top right bottom' in whole pixels")
    left, top, right, bottom = numbers
    if left >= right or top >= bottom:
        raise ValueError(f"box '{written}' is empty")
    return left, top, right, bottom
