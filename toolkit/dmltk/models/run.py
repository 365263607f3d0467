"""The model that a run left behind, as a source of embedders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from dmltk import registry
from dmltk.errors import UserError
from dmltk.models.embedder import Embedder
from dmltk.models.weights import load
from dmltk.spec import Spec, as_spec, imports

__all__ = ["card", "run"]

FILE = "model.safetensors"
FIRST = ("weights", "pretrained", "seed")


def run(path: str) -> Embedder:
    """The embedder that a run trained: its weights, its heads and its picture size.

    Args:
        path: the run's folder, which holds model.safetensors.

    Raises:
        UserError: no such file, one that is not a run's, or a model from an import path.
    """
    file = Path(path).expanduser() / FILE
    if not file.is_file():
        raise UserError(f"there is no {FILE} in '{path}': give the folder of a finished run")
    written = _read(file)
    missing = [key for key in ("model", "heads") if key not in written]
    if missing:
        raise UserError(
            f"the card of {file} lacks '{missing[0]}', so its model is not known:"
            f" build that model with weights={file}"
        )
    spec = written["model"]
    if paths := list(imports(spec)):
        raise UserError(
            f"{file} would import '{paths[0]}', and no code is run because a file names it:"
            f" if you trust it, write the model out: {spec},weights={file}"
        )
    embedder: Embedder = registry.build("models", spec)
    for name, args in json.loads(written["heads"]).items():
        put = embedder.set_head if name in embedder.heads else embedder.add_head
        put(name, **args)
    load(embedder, str(file), heads=())
    embedder.origin = spec
    return embedder


run.train_dim = 0  # type: ignore[attr-defined]


def card(
    embedder: Embedder, spec: str | Spec, context: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """What `run:DIR` must find in a file's metadata to build the embedder again.

    Args:
        embedder: what is saved.
        spec: of the model it was built from.
        context: what was offered when it was built.

    Returns:
        `model`, a spec with all that decides the architecture and without first weights, and
        `heads`, the arguments of every head as JSON.
    """
    heads = {name: embedder.head(name).args for name in embedder.heads}
    return {"model": embedder.origin or _resolved(spec, context or {}), "heads": json.dumps(heads)}


def _resolved(spec: str | Spec, context: Mapping[str, Any]) -> str:
    """The spec with what the context gave it, and without where its first weights came from."""
    given = as_spec(spec)
    parameters = registry.signature(registry.factory("models", given.name)).parameters
    first = next(iter(parameters), "")
    offered = {
        key: str(value)
        for key, value in context.items()
        if key in parameters and key not in given.kwargs and not (given.args and key == first)
    }
    kept = {k: v for k, v in {**given.kwargs, **offered}.items() if k not in FIRST}
    return str(Spec(given.name, given.args, kept))


def _read(file: Path) -> dict[str, str]:
    try:
        with safe_open(file, "pt") as opened:
            return opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} cannot be read as a run's weights: {error}") from error
