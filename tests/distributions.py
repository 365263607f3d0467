"""Real distributions for the tests: wheels written by hand, installed by pip, used in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path


def install(target: Path, name: str, modules: dict[str, str], points: dict[str, str]) -> None:
    """Install a distribution of some modules and entry points into a folder.

    Args:
        target: where pip puts it; belongs on PYTHONPATH.
        name: of the distribution.
        modules: source text by file name.
        points: ``group`` to ``name = module:object`` lines.
    """
    module = name.replace("-", "_")
    info = f"{module}-0.2.dist-info"
    written = "".join(f"[{group}]\n{lines}\n\n" for group, lines in points.items())
    about = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 0.2", f"Summary: of {name}", ""]
    kind = [
        "Wheel-Version: 1.0",
        "Generator: test",
        "Root-Is-Purelib: true",
        "Tag: py3-none-any",
        "",
    ]
    files = {
        **modules,
        f"{info}/METADATA": "\n".join(about),
        f"{info}/WHEEL": "\n".join(kind),
        f"{info}/entry_points.txt": written,
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = target.parent / f"{module}-0.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)


def python(code: str, *paths: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees some folders of distributions."""
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
        timeout=120,
    )


def answer(code: str, *paths: Path, **environment: str) -> object:
    """The JSON that code prints."""
    done = python(code, *paths, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
