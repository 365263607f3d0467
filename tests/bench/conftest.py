from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dmltk.bench.assemble import assemble
from dmltk.bench.run import run
from dmltk.folder import RunFolder

SMALL = {"model": "smallconv:width=4,dim=16", "dataset": "glyphs:classes=8,per_class=6,size=16"}
Bench = Callable[..., dict[str, Any]]


def flags(**given: Any) -> dict[str, Any]:
    """The flags of ``dmltk bench``, those not given left out."""
    lists = dict.fromkeys(("suite", "attack", "protocol", "metric"), ())
    none = dict.fromkeys(("out", "eps", "limit", "batch", "seed", "surrogate", "save_adversarial"))
    return {"resume": False, "overwrite": False, **lists, **none, **SMALL, **given}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Runs a bench on a small model and data set in the test's folder."""

    def made(name: str = "b", mode: Any = "new", **given: Any) -> dict[str, Any]:
        config, out = assemble(flags(out=str(tmp_path / name), resume=mode == "resume", **given))
        return run(config, RunFolder(out, mode), lambda *_: None, lambda _: None)

    return made
