"""One file that a killed run goes on from: weights, optimizer tensors, state as metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from dmltk import stored
from dmltk.errors import DmltkError

NAME = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"


def save(
    folder: Path,
    modules: Mapping[str, nn.Module],
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
) -> None:
    """Write the checkpoint aside and rename it; the one before is kept.

    Args:
        folder: the run's.
        modules: what has weights, by a short name.
        optimizer: over parameters of those modules.
        state: JSON data: epoch, step and whatever else is not a tensor.
    """
    tensors = {
        f"{name}.{key}": value
        for name, module in modules.items()
        for key, value in module.state_dict().items()
    }
    names = _parameter_names(modules)
    for parameter, slots in optimizer.state.items():
        for slot, value in slots.items():
            tensors[f"optimizer.{names[id(parameter)]}/{slot}"] = torch.as_tensor(value)
    stored.write(folder / NAME, tensors, {"state": json.dumps(state)}, keep=folder / PREVIOUS)


def save_module(path: Path, module: nn.Module) -> None:
    """Write a module's weights alone."""
    stored.write(path, module.state_dict(), {})


def load_module(path: Path, module: nn.Module) -> None:
    """Put weights back that :func:`save_module` wrote.

    Raises:
        DmltkError: where the file cannot be read.
    """
    try:
        tensors, _ = stored.read(path)
    except (SafetensorError, OSError) as error:
        raise DmltkError(
            f"{path} cannot be read ({error}): train again with --overwrite"
        ) from error
    module.load_state_dict(tensors, strict=True)


def load(
    folder: Path, modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer
) -> dict[str, Any] | None:
    """Put a run back to its last whole checkpoint.

    Returns:
        The saved state, or None where there is no checkpoint.

    Raises:
        DmltkError: where files are there but none can be read.
    """
    found = _last_whole(folder)
    if found is None:
        return None
    tensors, state = found
    _put_back(tensors, modules, optimizer)
    return state


def read_module(folder: Path, name: str) -> dict[str, Tensor] | None:
    """One module's tensors of the last whole checkpoint; None where there is no checkpoint.

    Raises:
        DmltkError: where files are there but none can be read.
    """
    found = _last_whole(folder)
    return None if found is None else dict(_under(found[0], f"{name}."))


def _last_whole(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    torn: list[str] = []
    for path in (folder / NAME, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            tensors, metadata = stored.read(path)
            return tensors, json.loads(metadata["state"])
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            torn.append(f"{path.name} ({error})")
    if torn:
        raise DmltkError(f"no checkpoint in {folder} can be read: {'; '.join(torn)}")
    return None


def _put_back(
    tensors: Mapping[str, Tensor],
    modules: Mapping[str, nn.Module],
    optimizer: torch.optim.Optimizer,
) -> None:
    for name, module in modules.items():
        module.load_state_dict(dict(_under(tensors, f"{name}.")), strict=True)
    names = _parameter_names(modules)
    saved: dict[str, dict[str, Tensor]] = {}
    for key, value in _under(tensors, "optimizer."):
        parameter, _, slot = key.rpartition("/")
        saved.setdefault(parameter, {})[slot] = value
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            slots = saved.get(names[id(parameter)])
            if slots is not None:
                optimizer.state[parameter] = {
                    slot: value if slot == "step" else value.to(parameter.device)
                    for slot, value in slots.items()
                }


def _under(tensors: Mapping[str, Tensor], prefix: str) -> Iterator[tuple[str, Tensor]]:
    return ((k.removeprefix(prefix), v) for k, v in tensors.items() if k.startswith(prefix))


def _parameter_names(modules: Mapping[str, nn.Module]) -> dict[int, str]:
    return {
        id(parameter): f"{name}.{key}"
        for name, module in modules.items()
        for key, parameter in module.named_parameters()
    }
