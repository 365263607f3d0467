"""From the flags of ``dmltk run`` to a checked configuration; no torch in here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dmltk import convert, registry
from dmltk.errors import UserError
from dmltk.pipelines.compose import resolve
from dmltk.pipelines.structure import Pipeline
from dmltk.spec import parse
from dmltk.training.config import Config, from_dict, load

_LISTS = {"eval_attack": "eval_attacks", "protocol": "protocols", "metric": "metrics"}
_METHOD = ("pipeline", "attack", "bn", "loss", "settings")
_ELSEWHERE = ("config", "allow_import", "out", "overwrite", "resume", "as_json")
_NOT_CONFIG = {*_METHOD, *_LISTS, *_ELSEWHERE, "seeds", "route_lr"}


def assemble(flags: Mapping[str, Any]) -> tuple[Config, Path]:
    """The configuration and the folder that the flags of a run mean.

    Args:
        flags: by name, None or empty where not given.

    Raises:
        UserError: for a flag that cannot be, or one that contradicts the run to be resumed.
    """
    out = Path(flags["out"] or Path("runs", _title(flags)))
    allow = tuple(flags["allow_import"])
    saved = out / "config.yaml"
    going_on = flags["resume"] and saved.exists()
    base = None
    if flags["config"]:
        base = load(flags["config"], allow)
    elif going_on:
        base = load(saved, allow)
    config = _changed(base, flags, allow)
    for kind, spec in config.specs():
        registry.resolve(kind, parse(spec).name)
    if going_on:
        kept = load(saved, allow)
        if config.channels_last == "auto":
            config = msgspec.structs.replace(config, channels_last=kept.channels_last)
        convert.same(kept, config, f"the run in {out}")
    return config, out


def _changed(base: Config | None, flags: Mapping[str, Any], allow: tuple[str, ...]) -> Config:
    data: dict[str, Any] = msgspec.to_builtins(base) if base else {}
    given = {key: value for key, value in flags.items() if value not in (None, "", (), False)}
    data |= {key: value for key, value in given.items() if key not in _NOT_CONFIG}
    data |= {key: list(given[flag]) for flag, key in _LISTS.items() if flag in given}
    if "seeds" in given:
        data["seeds"] = [part.strip() for part in given["seeds"].split(",")]
    if "route_lr" in given:
        data["route_lr"] = dict(_pair(text) for text in given["route_lr"])
    if base is None and "limit" in given and "protocol" not in given:
        data["protocols"] = ["clean", "query"]
    if base is None or any(key in given for key in _METHOD):
        data["pipeline"] = msgspec.to_builtins(_method(base, flags, allow))
    return from_dict(data)


def _pair(text: str) -> tuple[str, str]:
    route, equals, rate = text.partition("=")
    if not equals:
        raise UserError(f"--route-lr {text}: write --route-lr route=rate, such as mtax=1e-7")
    return route, rate


def _method(base: Config | None, flags: Mapping[str, Any], allow: tuple[str, ...]) -> Pipeline:
    return resolve(
        pipeline=flags["pipeline"] or "",
        attacks=flags["attack"],
        norms=flags["bn"] or "",
        loss=flags["loss"] or "",
        settings=flags["settings"],
        base=base.pipeline if base else None,
        allow=allow,
    )


def _title(flags: Mapping[str, Any]) -> str:
    """A folder's name from what was asked for."""
    if flags["attack"]:
        method = [*(parse(spec).name for spec in flags["attack"]), flags["bn"] or "kway"]
    elif flags["pipeline"]:
        method = [Path(flags["pipeline"]).stem]
    elif flags["config"]:
        return f"{Path(flags['config']).resolve().parent.name}-again"
    else:
        method = ["mdprop"]
    words = [*method, parse(flags["dataset"] or "glyphs").name]
    return re.sub(r"[^\w.-]+", "-", "-".join(words)).strip("-.") or "run"
