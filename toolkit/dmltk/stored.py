"""Tensors with their metadata in one safetensors file that is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dmltk.atomic import replacing
from dmltk.errors import DmltkError

__all__ = ["read", "write"]


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file, and its metadata.

    Raises:
        SafetensorError, OSError: where it is torn or not there.
    """
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        return tensors, file.metadata() or {}


def write(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], keep: Path | None = None
) -> None:
    """Write a file aside and rename it.

    Args:
        path: the file.
        tensors: by name; tied ones are stored once each.
        metadata: text by name.
        keep: where the file that was there before goes.

    Raises:
        DmltkError: where it cannot be written; what was there before stays.
    """
    # clones, since tied tensors share memory and safetensors refuses that
    plain = {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}
    try:
        with replacing(path) as aside:
            save_file(plain, aside, metadata=dict(metadata))
            if keep is not None and path.exists():
                os.replace(path, keep)
    except (OSError, SafetensorError) as error:
        raise DmltkError(f"cannot write {path} ({error}): make room and use --resume") from error
