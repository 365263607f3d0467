"""Data sets as their authors publish them: files of fixed records, in a folder or an archive."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dmltk.data.files import some
from dmltk.errors import UserError

T = TypeVar("T")
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Published:
    """What is looked for and where, and what its authors say of it.

    Args:
        name: of the data set.
        files: the names of all files that are read; each may be compressed (`NAME.gz`).
        folder: the one that the archive unpacks to, in which the files lie.
        archive: the archive's name.
        page: where it is to be had.
        pictures: how many there are for training and for the test.
        licence: of the pictures.
        credit: who made it.
        pickled: files and folders that only another version has, one made of pickles.
    """

    name: str
    files: tuple[str, ...]
    folder: str
    archive: str
    page: str
    pictures: tuple[int, int]
    licence: str
    credit: str
    pickled: frozenset[str] = frozenset()


def read(path: str, published: Published, parse: Callable[[str, bytes], T]) -> dict[str, T]:
    """Every file of a data set, parsed.

    Args:
        path: the archive, the folder that it unpacks to, or the folder that holds either.
        published: what is looked for.
        parse: is given the name and the contents of a file; a ValueError says what is wrong.

    Raises:
        UserError: nothing is there, or only pickles, or files are missing or broken, all of which
            are named together.
    """
    place = find(path, published)
    parsed: dict[str, T] = {}
    faults: dict[str, str] = {}
    seen = {place.name}
    files = in_folder if place.is_dir() else in_archive
    for name, content in files(place, published, seen):
        plain = name.removesuffix(".gz")
        try:
            parsed[plain] = parse(plain, content if name == plain else gunzip(content))
        except ValueError as error:
            faults[plain] = str(error)
        if len(parsed) + len(faults) == len(published.files):
            break
    if not parsed and not faults:
        raise nothing(path, published, seen)
    if wrong := [name for name in published.files if name not in parsed]:
        told = [f"{name} ({faults.get(name, 'missing')})" for name in wrong]
        raise UserError(
            f"{len(wrong)} of the {len(published.files)} files of {published.name} in '{path}' "
            f"cannot be used: {some(told)}; get {published.archive} again from {published.page}"
        )
    return parsed


def find(path: str, published: Published) -> Path:
    """The folder in which the files lie, or else the archive.

    Raises:
        UserError: the path does not exist.
    """
    root = Path(path).expanduser()
    if not root.exists():
        raise UserError(f"no folder '{path}'; give that of {published.archive}, or the file itself")
    for folder in (root / published.folder, root):
        if any(present(folder, name) for name in published.files):
            return folder
    packed = root / published.archive
    return packed if packed.is_file() else root


def present(folder: Path, name: str) -> Path | None:
    """The file of this name, plain or compressed, where there is one."""
    plain, packed = folder / name, folder / f"{name}.gz"
    return plain if plain.is_file() else packed if packed.is_file() else None


def in_folder(folder: Path, published: Published, seen: set[str]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files that are looked for; the names of all go to `seen`.

    Raises:
        UserError: a file may not be read.
    """
    seen.update(entry.name for entry in folder.iterdir())
    for name in published.files:
        if file := present(folder, name):
            try:
                yield file.name, file.read_bytes()
            except OSError as error:
                raise UserError(f"'{file}' cannot be read: {error.strerror}") from None


def in_archive(archive: Path, published: Published, seen: set[str]) -> Iterator[tuple[str, bytes]]:
    """The same of a tar archive, read from its start as far as needed; nothing is unpacked.

    Raises:
        UserError: it is no tar archive, or is cut short.
    """
    wanted = {*published.files, *(f"{name}.gz" for name in published.files)}
    try:
        with tarfile.open(archive, "r|*") as packed:
            for entry in packed:
                parts = PurePosixPath(entry.name).parts
                seen.update(parts)
                file = packed.extractfile(entry) if entry.isfile() else None
                if file is not None and parts[-1] in wanted:
                    wanted -= {parts[-1], f"{parts[-1]}.gz", parts[-1].removesuffix(".gz")}
                    yield parts[-1], file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"'{archive}' cannot be read as a tar archive to its end ({reason}); get it again"
        ) from None


def nothing(path: str, published: Published, seen: set[str]) -> UserError:
    """The error where no file of a data set was found."""
    if published.pickled & seen:
        return UserError(
            f"'{path}' holds {published.name} as Python pickles, which are never loaded; "
            f"get the binary version, {published.archive}, from {published.page}"
        )
    return UserError(
        f"'{path}' holds none of the files of {published.name} ({some(published.files)}); "
        f"get {published.archive} from {published.page}"
    )


def records(content: bytes, width: int) -> Bytes:
    """The records of a file, (n, width).

    Raises:
        ValueError: there are none, or the last one is cut short.
    """
    if not content or len(content) % width:
        raise ValueError(f"{len(content):,} bytes are no whole number of {width:,}-byte records")
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, width)


def within(labels: Bytes, allowed: range) -> Bytes:
    """The labels of a file, where all are allowed.

    Raises:
        ValueError: naming the first that is not.
    """
    outside = ((labels < allowed[0]) | (labels > allowed[-1])).nonzero()[0]
    if len(outside):
        place = int(outside[0])
        raise ValueError(
            f"record {place + 1} has the label {labels[place]}, not in {allowed[0]}..{allowed[-1]}"
        )
    return labels


def gunzip(content: bytes) -> bytes:
    """What a .gz file holds.

    Raises:
        ValueError: it is no such file, or is cut short or damaged.
    """
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"no sound gzip file: {error}") from None
