"""A data set from a list of the user's that says which pictures are alike, and no names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from dmltk.data.division import counts
from dmltk.data.files import Files, check, fingerprint, some
from dmltk.data.split import Dataset, Split
from dmltk.data.table import table
from dmltk.errors import UserError

COLUMNS = ("a", "b", "same")
WORDS = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True)
class Pair:
    """One line of a list: its number, its pictures as written and as files, and whether alike."""

    number: int
    names: tuple[str, str]
    files: tuple[Path, Path]
    same: bool


def pairs(path: str, *, test: Dataset, size: Annotated[int, Meta(ge=8)] = 64) -> Dataset:
    """Pictures of your own in pairs, which a CSV file says to be alike or not, without names.

    The file has the columns a, b and same (1, 0, true or false); others are ignored, and named in
    the card. Being alike is transitive: pictures joined by like pairs share a label, and an unlike
    pair among them contradicts. Nothing is known of pairs that are not listed, so it is trained on
    with `--sampler pairs --pipeline siamese:pairs=adjacent`. Every picture is decoded once at
    the start, and all that is wrong is told by line.

    Args:
        path: the file: UTF-8, commas, the first line names the columns; paths start from its
            folder.
        test: data set whose test split judges, and whose validation split, where it has one,
            validates, since both need names: `test=folder(photos)`.
        size: height and width: the shorter side is brought to it, the middle cut out.

    Raises:
        UserError: the file, a column or a picture is missing, lines cannot be used, unlike pairs
            contradict like ones, or the pictures of `test` have another size.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"no file '{path}'; give a CSV file with the columns a, b and same")
    header, lines = table(file, COLUMNS, (), partial(line, file.parent))
    found: dict[Path, tuple[int, str]] = {}
    for pair in lines:
        for name, place in zip(pair.names, pair.files, strict=True):
            found.setdefault(place, (pair.number, name))
    places, names = list(found), [name for _, name in found.values()]
    number = {place: row for row, place in enumerate(places)}
    rows = np.array([[number[place] for place in pair.files] for pair in lines])
    same = np.array([pair.same for pair in lines])
    labels, first = components(rows[same], len(places))
    if wrong := contradictory(lines, rows, labels, names):
        raise UserError(f"{file} contradicts itself in {wrong}; mend these lines")
    marks = check(places, file, [f"line {at} '{name}'" for at, name in found.values()])
    if (sides := tuple(test.test[0][0].shape[1:])) != (size, size):
        raise UserError(
            f"{file} is read at {size} by {size} pixels and test={test.card.get('name')} at"
            f" {sides[1]} by {sides[0]}: give both the same size"
        )
    train = Split(
        Files(places, size),
        torch.from_numpy(labels),
        [names[row] for row in first],
        pairs=torch.from_numpy(rows),
    )
    told = [*names, *(f"{a} {b}" for a, b in rows.tolist()), "test"]
    held = [*marks, *map(str, same), str(test.card.get("sha256"))]
    card = {
        "name": file.stem,
        "size": size,
        "licence": "the user's own",
        "credits": [],
        "sha256": fingerprint(told, held),
        "skipped": {},
        "ignored_columns": [name for name in header if name not in COLUMNS],
        "pairs": {"like": int(same.sum()), "unlike": int((~same).sum())},
        **counts({"train": train, **({"val": test.val} if test.val else {}), "test": test.test}),
        "test": dict(test.card),
    }
    return Dataset(train, test.val, test.test, card)


def line(folder: Path, number: int, said: Mapping[str, str]) -> Pair:
    """One line, checked.

    Raises:
        ValueError: saying what is wrong with it.
    """
    same = WORDS.get(said["same"].lower())
    if same is None:
        raise ValueError(f"same '{said['same']}' is none of {', '.join(WORDS)}")
    a, b = (Path(os.path.realpath(folder / said[side])) for side in ("a", "b"))
    if a == b:
        raise ValueError(f"'{said['a']}' beside itself")
    return Pair(number, (said["a"], said["b"]), (a, b), same)


def components(like: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of pictures that like pairs join, directly or through others.

    Args:
        like: (M, 2) rows.
        count: of pictures.

    Returns:
        (count,) labels in the order of their first pictures, and (C,) those pictures.
    """
    _, marks = connected_components(_graph(like, count), directed=False)
    _, first, place = np.unique(marks, return_index=True, return_inverse=True)
    rank = first.argsort().argsort()
    return rank[place].astype(np.int64), np.sort(first)


def contradictory(
    lines: Sequence[Pair], rows: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> str:
    """The unlike pairs that like ones deny, with the chain of the first; empty where none are.

    Args:
        lines: M pairs.
        rows: (M, 2) their pictures.
        labels: (N,) of :func:`components`.
        names: N pictures as written.
    """
    same = np.array([pair.same for pair in lines])
    wrong = np.flatnonzero(~same & (labels[rows[:, 0]] == labels[rows[:, 1]])).tolist()
    if not wrong:
        return ""
    told = [f"line {lines[at].number} ({_said(lines[at])})" for at in wrong]
    start, end = rows[wrong[0]]
    _, before = breadth_first_order(_graph(rows[same], len(names)), start, directed=False)
    chain = [end]
    while chain[-1] != start:
        chain.append(before[chain[-1]])
    joined = ", ".join(f"{names[b]} ~ {names[a]}" for a, b in reversed([*pairwise(chain)]))
    return f"{some(told)}, such as {_said(lines[wrong[0]])} although {joined}"


def _said(pair: Pair) -> str:
    return f"{pair.names[0]} {'~' if pair.same else '≁'} {pair.names[1]}"


def _graph(edges: np.ndarray, count: int) -> csr_array:
    ones = np.ones(len(edges), dtype=np.int8)
    return csr_array((ones, (edges[:, 0], edges[:, 1])), shape=(count, count))
