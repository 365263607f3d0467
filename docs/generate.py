"""Fills the generated parts of the plug-in pages: a template, the checks, the registered parts.

``python docs/generate.py`` rewrites docs/plugins/*.md between their markers; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from dmltk import registry
from dmltk.description import Parameter, describe
from dmltk.testing import checks_of

PAGES = Path(__file__).parent / "plugins"


def template(kind: str) -> str:
    """The part that ``dmltk new plugin`` writes."""
    source = (resources.files("dmltk.templates") / f"{kind}.py").read_text("utf-8")
    return f"```python\n{source}```"


def checks(kind: str) -> str:
    """What the conformance kit looks at."""
    rows = [
        f"| {name.replace('_', ' ')} | {(run.__doc__ or '').splitlines()[0]} |"
        for name, run in checks_of(kind).items()
    ]
    return "\n".join(["| check | what must hold |", "|---|---|", *rows])


def parts(kind: str) -> str:
    """Every built-in part of a kind with its parameters."""
    entries = [e for e in registry.entries(kind) if e.distribution == registry.HOME]
    return "\n\n".join(_part(kind, entry.name) for entry in entries)


def _part(kind: str, name: str) -> str:
    found = describe(kind, name)
    source = f"\n\nSource: {found.source}" if found.source else ""
    if not found.parameters:
        return f"### {name}\n\n{found.summary}{source}"
    head = ["| parameter | type | default | range | meaning |", "|---|---|---|---|---|"]
    table = "\n".join([*head, *map(_row, found.parameters)])
    return f"### {name}\n\n{found.summary}{source}\n\n{table}"


def _row(one: Parameter) -> str:
    cells = (f"`{one.name}`", one.type, f"`{one.default}`", one.range, one.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


MARKS: dict[str, Callable[[str], str]] = {"template": template, "checks": checks, "parts": parts}


def filled(page: str, kind: str) -> str:
    """A page with its generated parts as they are now."""
    for mark, made in MARKS.items():
        between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.S)
        page = between.sub(lambda m, made=made: f"{m[1]}{made(kind)}\n{m[2]}", page)  # type: ignore[misc]
    return page


def main() -> None:
    """Rewrite the pages of all kinds."""
    for kind in map(registry.singular, registry.KINDS):
        path = PAGES / f"{kind}.md"
        path.write_text(filled(path.read_text("utf-8"), kind), "utf-8")


if __name__ == "__main__":
    main()
