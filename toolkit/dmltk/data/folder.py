"""A data set from a folder of the user's: one folder a class, perhaps in folders of splits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from dmltk.data.division import PARTS, divide
from dmltk.data.files import SUFFIXES, Files, check, check_apart, fingerprint
from dmltk.data.split import Dataset, number
from dmltk.errors import UserError


def folder(
    path: str,
    *,
    size: Annotated[int, Meta(ge=8)] = 64,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Pictures of your own, one folder a class.

    Classes are taken in the order of their names: the first half trains, the second half
    tests. Where the class folders lie in train/ and test/ (and val/), these are the splits, and
    the card says how many classes they share; query/ and gallery/ may stand in the place of test/:
    queries are looked for in the gallery alone. Every picture is decoded once at the start, and
    all broken ones are named together. Other files are skipped and counted; links to folders
    are not followed.

    Args:
        path: the folder that holds the class folders, or train/ and test/, or train/, query/ and
            gallery/.
        size: height and width: the shorter side is brought to it, the middle cut out.
        val: share of the training classes, the last ones, kept for validation.

    Raises:
        UserError: the folder is missing or empty, or holds broken pictures or too few classes.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"no folder '{path}'; give the folder that holds one folder a class")
    divided = is_divided(root)
    paths, skipped = find(root, 2 if divided else 1)
    if not paths:
        raise UserError(complaint(root / "train" if divided else root))
    inner = [file.relative_to(root) for file in paths]
    labels, names = number([place.parts[1 if divided else 0] for place in inner])
    if len(names) < 2:
        raise UserError(
            f"'{path}' holds pictures of one class only ('{names[0]}'); "
            f"it takes at least two class folders"
        )
    parts = [place.parts[0] for place in inner] if divided else None
    called = [str(place) for place in inner]
    if parts is not None:
        check_apart(paths, called, parts, [None] * len(paths))
    marks = check(paths, root, called)
    card = {
        "name": root.resolve().name,
        "size": size,
        "licence": "the user's own",
        "credits": [],
        "sha256": fingerprint([place.as_posix() for place in inner], marks),
        "skipped": {"not_pictures": skipped},
    }
    return divide(Files(paths, size), labels, names, val=val, card=card, parts=parts)


def is_divided(root: Path) -> bool:
    """Whether the class folders lie in train/ and test/ (and val/), or query/ and gallery/.

    Raises:
        UserError: what is tested is missing, or other folders stand beside.
    """
    entries = [entry for entry in root.iterdir() if entry.is_dir()]
    inside = {entry.name for entry in entries if not entry.name.startswith(".")}
    parts = inside & set(PARTS)
    if "train" not in parts or len(parts) < 2:
        return False
    if parts == {"train", "val"}:
        raise UserError(f"'{root}' has train/ and val/ but no test/; the test pictures go there")
    if others := sorted(inside - parts):
        tested = max(parts - {"train", "val"})
        raise UserError(
            f"'{root}' has '{others[0]}' beside train/ and {tested}/; move it away, so that it is "
            f"clear whether these are splits or classes"
        )
    return True


def find(root: Path, depth: int = 1) -> tuple[list[Path], int]:
    """The pictures at least `depth` folders below `root`, sorted, and the number of other files.

    Hidden folders and links to folders are passed over.
    """
    pictures: list[Path] = []
    others = 0
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(place, name) for name in files]
        deep = len(Path(place).relative_to(root).parts) >= depth
        inside = [path for path in paths if is_picture(path)] if deep else []
        pictures += inside
        others += len(paths) - len(inside)
    return sorted(pictures), others


def is_picture(path: Path) -> bool:
    """Whether the name is that of a picture (files such as `._a.jpg` are not)."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def complaint(root: Path) -> str:
    """Why a folder without pictures in class folders cannot be used."""
    if any(is_picture(entry) for entry in root.iterdir()):
        return (
            f"the pictures of '{root}' lie beside each other; "
            f"put those of each class into a folder of its own"
        )
    if not any(root.iterdir()):
        return f"the folder '{root}' is empty; it must hold one folder of pictures a class"
    kinds = ", ".join(sorted(SUFFIXES))
    return (
        f"no pictures in the class folders of '{root}'; files with these endings are read: {kinds}"
    )
