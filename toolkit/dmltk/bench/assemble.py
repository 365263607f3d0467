"""From the flags of ``dmltk bench`` to a checked configuration; no torch in here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dmltk import convert, registry
from dmltk.bench.config import Config
from dmltk.errors import UserError
from dmltk.pipelines.compose import is_file
from dmltk.pipelines.structure import read_file
from dmltk.spec import parse

__all__ = ["assemble"]

_LISTS = {"suite": "suites", "attack": "attacks", "protocol": "protocols", "metric": "metrics"}
_ELSEWHERE = ("out", "overwrite", "resume", "as_json", "eps")
SUITES = ("quick",)


def assemble(flags: Mapping[str, Any]) -> tuple[Config, Path]:
    """The configuration and the folder that the flags of a bench mean.

    Args:
        flags: by name, None or empty where not given.

    Raises:
        UserError: for a flag that cannot be, or one that contradicts the bench to be resumed.
    """
    given = {key: value for key, value in flags.items() if value not in (None, "", (), False)}
    data: dict[str, Any] = {
        key: value for key, value in given.items() if key not in (*_LISTS, *_ELSEWHERE)
    }
    data |= {field: list(given[flag]) for flag, field in _LISTS.items() if flag in given}
    if "eps" in given:
        data["eps"] = [part.strip() for part in given["eps"].split(",")]
    out = Path(given["out"]) if "out" in given else _folder(data)
    saved = out / "config.yaml"
    kept = None
    if flags["resume"] and saved.exists():
        kept = convert.structure(read_file(saved, "config", ()), Config, str(saved))
        data = {**msgspec.to_builtins(kept), **data}
    for needed in ("model", "dataset"):
        if needed not in data:
            raise UserError(f"a bench needs a {needed}: write --{needed} SPEC")
    if not (data.get("suites") or data.get("attacks")):
        data["suites"] = list(SUITES)
    config = convert.structure(data, Config, "bench")
    _names(config)
    if kept is not None:
        convert.same(kept, config, f"the bench in {out}")
    return config, out


def _names(config: Config) -> None:
    """Refuse unknown names before anything heavy is imported."""
    for kind, specs in (
        ("models", (config.model, *((config.surrogate,) if config.surrogate else ()))),
        ("datasets", (config.dataset,)),
        ("suites", tuple(spec for spec in config.suites if not is_file(spec))),
        ("attacks", config.attacks),
        ("protocols", config.protocols),
        ("metrics", config.metrics),
    ):
        for spec in specs:
            registry.resolve(kind, parse(spec).name)


def _folder(data: Mapping[str, Any]) -> Path:
    words = ["bench", *(re.split(r"[:,]", str(data.get(k, "")))[0] for k in ("model", "dataset"))]
    return Path("runs", re.sub(r"[^\w.-]+", "-", "-".join(words)).strip("-.") or "bench")
