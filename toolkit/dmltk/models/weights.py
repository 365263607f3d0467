"""Weights to and from files: strict, told in full, and never by running a pickle's code."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dmltk import registry
from dmltk.atomic import replacing
from dmltk.cache import cache_dir
from dmltk.errors import UserError
from dmltk.spec import parse

__all__ = ["file_of", "load", "locate", "read", "save"]

PICKLES = (".pt", ".pth", ".bin")
WRAPPINGS = ("state_dict", "model")
SHOWN = 3


def locate(where: str) -> Path:
    """The file that `weights=` means: a path, or a name that `dmltk data get` knows.

    Raises:
        UserError: it is not there.
    """
    is_name = not Path(where).suffix and Path(where).name == where
    path = cache_dir() / "weights" / f"{where}.safetensors" if is_name else Path(where).expanduser()
    if path.is_file():
        return path
    if is_name:
        raise UserError(f"weights '{where}' are not here; run: dmltk data get {where}")
    raise UserError(f"weights={where}: there is no such file")


def file_of(spec: str) -> Path | None:
    """The file that a model's spec takes weights from; None where it names none.

    Raises:
        UserError: it names one that is not there.
    """
    asked = parse(spec)
    if asked.name == "run":
        folder = registry.given("models", asked).get("path")
        return locate(str(Path(str(folder), "model.safetensors"))) if folder else None
    named = asked.kwargs.get("weights")
    return locate(named) if isinstance(named, str) and named else None


def read(path: Path) -> dict[str, Tensor]:
    """The state dict in a file, unwrapped where it lies under `state_dict` or `model`.

    Raises:
        UserError: a pickle that needs code, a damaged file, or no state dict.
    """
    if path.suffix not in (".safetensors", *PICKLES):
        known = ", ".join((".safetensors", *PICKLES))
        raise UserError(f"{path}: weights are read from files that end in {known}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} is a pickle that would run code when it is read, and is not loaded:"
            " save its state dict, best as .safetensors"
        ) from error
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read as weights: {reason}") from error
    for key in WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise UserError(f"{path} holds no state dict (a mapping of names to tensors)")
    return dict(found)


def load(
    embedder: nn.Module,
    where: str,
    *,
    heads: Collection[str] = ("embed",),
    classifier: Sequence[str] = (),
) -> None:
    """Load a file strictly.

    Heads of which the file has no key keep what they have; a head it has must match.

    Args:
        embedder: what is loaded.
        where: a file, or a name in the toolkit's cache.
        heads: first parts of the keys that may be missing together.
        classifier: modules of the stock model whose keys may be left over.

    Raises:
        UserError: naming the first keys that do not match, on both sides.
    """
    path = locate(where)
    given = read(path)
    wanted: dict[str, Tensor] = embedder.state_dict()
    absent = {name for name in heads if not any(key.startswith(f"{name}.") for key in given)}
    needed = {key: value for key, value in wanted.items() if key.split(".")[0] not in absent}
    given |= {key: given[twin] for key, twin in _tied(needed).items() if twin in given}
    missing = [key for key in needed if key not in given]
    spare = tuple(f"{name}." for name in classifier)
    left = [key for key in given if key not in needed and not key.startswith(spare)]
    shapes = [
        f"{key} ({tuple(given[key].shape)} in the file, {tuple(value.shape)} in the model)"
        for key, value in needed.items()
        if key in given and given[key].shape != value.shape
    ]
    if missing or left or shapes:
        raise UserError(f"{path} does not fit the model: " + _unfit(missing, left, shapes, heads))
    kept = {key: value for key, value in wanted.items() if key not in needed}
    embedder.load_state_dict({key: given[key] for key in needed} | kept)


def save(module: nn.Module, path: Path | str, card: Mapping[str, str] | None = None) -> None:
    """Write a module's state dict as safetensors, whole or not at all.

    Tensors are made contiguous; tied ones are stored once, under their first name.

    Args:
        module: an embedder, or any module.
        path: the file; it is replaced where it exists.
        card: text by key, kept in the file's metadata.
    """
    target = Path(path)
    state: dict[str, Tensor] = module.state_dict()
    once = {key: value for key, value in state.items() if key not in _tied(state)}
    flat = {key: value.detach().cpu().clone().contiguous() for key, value in once.items()}
    with replacing(target) as aside:
        save_file(flat, aside, metadata=dict(card or {}))


def _tied(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Each further name of a tensor, with its first."""
    first: dict[tuple[Any, ...], str] = {}
    twins: dict[str, str] = {}
    for key, value in state.items():
        same = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if value.numel() and same in first:
            twins[key] = first[same]
        else:
            first[same] = key
    return twins


def _unfit(
    missing: Sequence[str], left: Sequence[str], shapes: Sequence[str], heads: Collection[str]
) -> str:
    parts = []
    if missing:
        parts.append(f"the file lacks {_some(missing)}")
    if left:
        parts.append(f"the model has no {_some(left)}")
    if shapes:
        parts.append(f"other shapes: {_some(shapes)}")
    prefix = _prefix(missing, left)
    if prefix:
        parts.append(f"strip the prefix '{prefix}' from the file's keys")
    elif prefix := _prefix(left, missing):
        parts.append(f"put the prefix '{prefix}' before the file's keys")
    elif left and not missing and all(key.split(".")[0] in heads for key in left):
        parts.append("give the model the head of the file with dim=… and hidden=…")
    return "; ".join(parts)


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest


def _prefix(short: Sequence[str], long: Sequence[str]) -> str:
    """What stands before most of the `short` keys in the `long` ones, or nothing."""
    names = set(long)
    for name in short[:1]:
        for key in long:
            prefix = key.removesuffix(name)
            if key.endswith(f".{name}") and sum(prefix + n in names for n in short) * 2 > len(
                short
            ):
                return prefix
    return ""
