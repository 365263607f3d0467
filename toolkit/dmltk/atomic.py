"""Files that are whole or not there, whenever the process is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it takes its place once it is whole and on the disk.

    Args:
        path: what is replaced; where the body fails it stays as it was.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
