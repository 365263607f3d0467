"""What ``dmltk list`` prints: plain columns, quickly."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence

__all__ = ["listing"]

HEAD = ("kind", "name", "from", "state", "what it is")
LEAST = 40


def listing(rows: Sequence[Mapping[str, str]], width: int = 0) -> str:
    """A line or more for each part, under a head.

    Args:
        rows: as ``dmltk list --json`` prints them.
        width: of a line; 0 is the terminal's, or 128 without one.
    """
    width = width or shutil.get_terminal_size((128, 24)).columns
    cells = [HEAD] + [
        (
            row["kind"],
            row["name"],
            f"{row['distribution']} {row['version']}".strip(),
            row["state"],
            row["summary"],
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    indent = sum(widths) + 8
    lines = []
    for line in cells:
        first = "".join(f"{text:<{room}}  " for text, room in zip(line, widths, strict=False))
        told = textwrap.wrap(line[4], max(width - indent, LEAST)) or [""]
        lines += [f"{first}{told[0]}".rstrip(), *(" " * indent + more for more in told[1:])]
    return "\n".join(lines)
