"""A module imports from floors below it only, and the command line starts without torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .distributions import answer

ROOT = Path(__file__).parent.parent / "toolkit" / "dmltk"
FLOORS = (
    ("errors", "spec", "cache", "atomic"),
    (
        "batch",
        "convert",
        "entries",
        "registry",
        "description",
        "source",
        "seeds",
        "device",
        "folder",
        "notes",
        "stored",
    ),
    ("attacks", "losses", "norms", "models", "data"),
    ("pipelines",),
    ("evaluation",),
    ("training", "bench"),
    ("reproduce", "analysis"),
    ("report", "testing", "templates", "scaffold"),
    ("cli",),
    ("__main__",),
)
HEIGHT = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
TORCHLESS = (
    "errors",
    "spec",
    "cache",
    "convert",
    "registry",
    "description",
    "pipelines",
    "cli",
    "scaffold",
)
HEAVY = {"torch", "torchvision", "timm", "pytorch_metric_learning", "sklearn", "matplotlib"}


def imported(path: Path) -> set[str]:
    """Absolute names of all that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py") if path.parts[-1])


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_imports_from_below(module: Path) -> None:
    part = module.parts[0].removesuffix(".py")
    if part == "__init__":
        return
    for name in imported(ROOT / module):
        if name.split(".")[0] != "dmltk":
            continue
        other = name.split(".")[1]
        assert other in HEIGHT, f"{module} imports {name}, which stands on no floor"
        same = part == other or (HEIGHT[other] == HEIGHT[part] <= 1)
        assert same or HEIGHT[other] < HEIGHT[part], f"{module} imports {name} from above or beside"


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.parts[0].removesuffix(".py") in TORCHLESS], ids=str
)
def test_light_parts_name_no_heavy_package(module: Path) -> None:
    assert not HEAVY & {name.split(".")[0] for name in imported(ROOT / module)}


def test_modules_and_functions_stay_small() -> None:
    for module in MODULES:
        text = (ROOT / module).read_text("utf-8")
        assert text.count("\n") <= 350, f"{module} is too long to do one thing"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno
                assert length <= 70, f"{module}: {node.name} takes more than a screen"


COMMANDS = (
    ["--help"],
    ["list"],
    ["list", "attacks", "--json"],
    ["run", "--help"],
    ["plan", "--help"],
    ["run", "--attack", "stx"],
    ["bench", "--help"],
    ["analyse", "--help"],
    ["analyse", "here", "--attack", "stx"],
    ["bench", "--model", "smallconv", "--dataset", "glyphs", "--suite", "quik"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_light_commands_import_no_torch(words: list[str]) -> None:
    code = f"""
import contextlib, io, json, sys
from dmltk.__main__ import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        main({words!r})
    except SystemExit:
        pass
print(json.dumps(sorted({HEAVY!r} & set(sys.modules))))
"""
    assert answer(code) == []


def test_completion_imports_no_torch_and_knows_the_names() -> None:
    code = f"""
import json, sys
from click.shell_completion import ShellComplete
from dmltk.cli import cli
complete = ShellComplete(cli, {{}}, "dmltk", "_DMLTK_COMPLETE")
names = [c.value for c in complete.get_completions(["run", "--attack"], "m")]
print(json.dumps([names, sorted({HEAVY!r} & set(sys.modules))]))
"""
    assert answer(code) == [["mim", "misrank", "mtax"], []]
