"""The plug-in chapter: its generated parts are as they are now, and its tutorial works."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dmltk import registry

from .distributions import install

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "plugins"
TUTORIAL = (PAGES / "index.md").read_text("utf-8")
HELLO = ROOT / "plugins" / "dmltk-hello"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", [registry.singular(kind) for kind in registry.KINDS])
def test_generated_parts_are_up_to_date(kind: str) -> None:
    page = (PAGES / f"{kind}.md").read_text("utf-8")
    assert generator().filled(page, kind) == page, "run python docs/generate.py"
    for entry in registry.entries(kind):
        if entry.distribution == registry.HOME:
            assert f"\n### {entry.name}\n" in page


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", TUTORIAL, re.M | re.S)
    return [text for named, text in fenced if named == language]


def called(line: str, place: Path, *paths: Path) -> str:
    """A command of the tutorial, as a user calls it."""
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        capture_output=True,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    idea, written, kit = blocks("python")
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "greet.py").write_text(idea)
    joined = (block.replace("\\\n", "").strip() for block in blocks(""))
    first, new, last = (block.splitlines() for block in joined)
    for line in (*first, *new):
        called(line, tmp_path)
    folder = tmp_path / "dmltk-hello"
    assert (folder / "tests" / "test_hello.py").read_text() == kit
    assert (HELLO / "src" / "dmltk_hello" / "__init__.py").read_text() == written
    assert (HELLO / "tests" / "test_hello.py").read_text() == kit
    (point,) = blocks("ini")
    for place in (folder, HELLO):
        assert point in (place / "setup.cfg").read_text()
    site = tmp_path / "site"
    group = {"dmltk.attacks": "hello = dmltk_hello:hello"}
    install(site, "dmltk-hello", {"dmltk_hello/__init__.py": written}, group)
    pip, *commands = last
    assert pip == "pip install -e dmltk-hello"
    said = {line: called(line, tmp_path, site) for line in commands}
    assert re.search(r"hello +dmltk-hello 0\.2 +ok +Join the crowd", said["dmltk list attacks"])
    assert "attack:hello: it conforms" in said["dmltk check attack:hello"]
    assert "hello" in said[commands[-1]]
