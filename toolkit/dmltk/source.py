"""Docstrings read from source files: what a registered thing is, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from importlib import metadata
from pathlib import Path

from dmltk.entries import Entry

__all__ = ["docstring", "first_line", "summary"]

_DEFINITION = re.compile(r"^(?:class|def) (\w+).*\n(?:(?![\w@]).*(?:\n|\Z))*", re.M)


def summary(entry: Entry) -> str:
    """One line about an entry, read from its source without importing it."""
    if entry.factory is not None and not entry.target:
        return first_line(entry.factory.__doc__)
    try:
        found = docstring(entry.target)
    except (OSError, SyntaxError, ImportError, ValueError):
        found = None
    if found:
        return first_line(found)
    try:
        return metadata.metadata(entry.distribution)["Summary"] or ""
    except metadata.PackageNotFoundError:
        return ""


def docstring(target: str) -> str | None:
    """The docstring of a class, function or assignment (a string right after it), as written.

    Args:
        target: ``module:attribute``, as an entry point names it.

    Raises:
        OSError: the file cannot be read.
        SyntaxError: it is not Python.
    """
    module, _, attribute = target.partition(":")
    package, _, rest = module.partition(".")
    path = _file(_origin(package), rest)
    if path is None:
        return None
    alone = _definitions(path).get(attribute)
    try:
        return _of(ast.parse(alone) if alone else _tree(path), attribute)
    except SyntaxError:
        return _of(_tree(path), attribute)


def first_line(document: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((document or "").strip().split("\n\n")[0].split())


@cache
def _origin(package: str) -> Path | None:
    found = importlib.util.find_spec(package)
    return Path(found.origin) if found and found.origin else None


def _file(origin: Path | None, rest: str) -> Path | None:
    if origin is None or not rest:
        return origin
    path = origin.parent.joinpath(*rest.split("."))
    candidates = [path.with_suffix(".py"), path / "__init__.py"]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@cache
def _definitions(path: Path) -> dict[str, str]:
    """Each class and function on its own: quicker to parse than the file."""
    return {found[1]: found[0] for found in _DEFINITION.finditer(path.read_text("utf-8"))}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _of(tree: ast.Module, attribute: str) -> str | None:
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
            return ast.get_docstring(node)
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(t, ast.Name) and t.id == attribute for t in targets) and isinstance(
            following, ast.Expr
        ):
            value = following.value
            found = value.value if isinstance(value, ast.Constant) else None
            return found if isinstance(found, str) else None
    return None
