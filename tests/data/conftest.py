from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the toolkit."""
    monkeypatch.setenv("DMLTK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def picture() -> Callable[[Path], Path]:
    """Writes a small noisy picture; its folders are made."""

    def write(path: Path, shape: tuple[int, ...] = (20, 30, 3)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        return path

    return write


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a Python script in the place of npm or pip; in it, `args` are the arguments."""

    def install(name: str, body: str) -> Path:
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        script = place / name
        script.write_text(f"#!{sys.executable}\nimport sys\nargs = sys.argv[1:]\n{body}\n")
        script.chmod(0o755)
        if name == "npm":
            monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
        else:
            monkeypatch.setattr("dmltk.data.fetch.sys.executable", str(script))
        return script

    return install


@pytest.fixture
def archive() -> Callable[[Path, dict[str, bytes]], Path]:
    """Writes a .tgz of the given members."""

    def write(path: Path, contents: dict[str, bytes]) -> Path:
        with tarfile.open(path, "w:gz") as packed:
            for name, content in contents.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))
        return path

    return write
