"""``dmltk list`` with forty plug-ins, one of them broken, beside ``import torch``.

Prints the median and the spread of both and of their ratio; the goal is a tenth. Run it as
``python tests/benchmarks/list_forty.py`` on a quiet machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.distributions import install  # noqa: E402

ROUNDS = 9
GOAL = 0.1
PART = '"""A part."""\n\n\ndef part(*, steps: int = 3):\n    """Part number {}."""\n'


def seconds(words: list[str], path: Path) -> float:
    """How long a fresh interpreter takes."""
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return time.perf_counter() - began


def told(name: str, values: list[float], unit: str = "s") -> str:
    return (
        f"{name}: {statistics.median(values):.3f} {unit} ({min(values):.3f} to {max(values):.3f})"
    )


def main() -> None:
    """Time both in turn and print."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        for number in range(40):
            name = f"acme-{number}"
            source = "import no_such_module\n" if number == 7 else PART.format(number)
            point = {"dmltk.attacks": f"part{number} = acme_{number}:part"}
            install(site, name, {f"acme_{number}.py": source}, point)
        ours, theirs = [], []
        for _ in range(1 + ROUNDS):
            ours.append(seconds(["-m", "dmltk", "list"], site))
            theirs.append(seconds(["-c", "import torch"], site))
        del ours[0], theirs[0]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        print(told("dmltk list, 40 plug-ins", ours))
        print(told("import torch", theirs))
        print(f"{told('ratio', ratios, '')}, goal {GOAL}")


if __name__ == "__main__":
    main()
