"""A run's folder: who may write into it, and the files that say what was done."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from dmltk import registry
from dmltk.atomic import replacing
from dmltk.errors import UserError

FILES = (
    "queries.csv",
    "worst.png",
    "curve.png",
    "config.yaml",
    "environment.json",
    "log.jsonl",
    "log.csv",
    "checkpoint.safetensors",
    "checkpoint.previous.safetensors",
    "best.safetensors",
    "model.safetensors",
    "results.json",
)
FOLDERS = ("tensorboard", "seed-*", "state", "runs", "analysis")
PACKAGES = ("dmltk", "torch", "torchvision", "timm", "pytorch-metric-learning", "numpy")
Mode = Literal["new", "overwrite", "resume"]


class RunFolder:
    """The folder of one run; nothing is written outside it, and nothing before `begin`.

    Args:
        path: made by `begin` where it is missing.
        mode: ``new`` refuses a folder that holds anything, ``overwrite`` removes what a run
            has left there, ``resume`` goes on in it (or starts, where it is missing or empty).

    Raises:
        UserError: where the folder may not be used so.
    """

    def __init__(self, path: str | Path, mode: Mode = "new") -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: name a folder with --out")
        held = any(self.path.iterdir()) if self.path.exists() else False
        if held and mode == "new":
            raise UserError(
                f"{self.path} exists: go on with --resume, replace it with --overwrite,"
                " or name another folder with --out"
            )
        known = self.file("config.yaml").exists() and self.file("environment.json").exists()
        if held and not known:
            raise UserError(f"{self.path} is not a run's folder: name another one with --out")
        self.mode = mode

    def begin(self) -> None:
        """Make the folder; of an earlier run only what is gone on from is left.

        Raises:
            UserError: where it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = FILES if self.mode == "overwrite" else ()
            for name in names:
                self.file(name).unlink(missing_ok=True)
            for pattern in FOLDERS if names else ():
                for inner in self.path.glob(pattern):
                    shutil.rmtree(inner)
            for torn in (path for name in FILES for path in self.path.glob(f".{name}.*")):
                torn.unlink()
        except OSError as error:
            raise UserError(f"{self.path} cannot be made ({error}): name another --out") from error

    def file(self, name: str) -> Path:
        """The path of one of the run's files."""
        return self.path / name

    @property
    def finished(self) -> bool:
        """Whether the run has its results."""
        return self.file("results.json").exists()

    def write(self, name: str, text: str) -> None:
        """Write a text file aside and rename it."""
        with replacing(self.file(name)) as aside:
            aside.write_text(text, "utf-8")

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        """Write JSON; NaN cannot stand in it."""
        self.write(name, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def environment(
    device: torch.device, seed: int, card: Mapping[str, Any], weights: Path | None
) -> dict[str, Any]:
    """What ``environment.json`` holds: versions, machine, source state, plug-ins, hashes.

    Args:
        device: where the run computes.
        seed: of the run.
        card: the data set's.
        weights: the file that the model was loaded from.
    """
    used = {
        entry.distribution: entry.version
        for kind in registry.KINDS
        for entry in registry.entries(kind)
        if entry.factory is not None and entry.distribution != registry.HOME
    }
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "plugins": used,
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "git": _git(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "data": dict(card),
        "weights": {"file": weights.name, "sha256": _sha256(weights)} if weights else None,
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
