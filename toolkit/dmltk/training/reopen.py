"""A finished run's model with all its routes."""

from __future__ import annotations

from pathlib import Path

import torch

from dmltk import registry
from dmltk.errors import UserError
from dmltk.models.run import run as main_alone
from dmltk.norms.routed import RoutedEmbedder
from dmltk.training import checkpoint
from dmltk.training.config import load
from dmltk.training.loop import BEST


def reopen(path: str | Path) -> RoutedEmbedder:
    """The model that a run trained, as ``run:DIR`` gives it, with its other routes.

    Args:
        path: the folder of a finished run.

    Raises:
        UserError: where it is not one, or its config names something by import path.
        DmltkError: where its checkpoint cannot be read.
    """
    folder = Path(path).expanduser()
    embedder = main_alone(str(folder))
    config = load(folder / "config.yaml")
    strategy = registry.build("norms", config.pipeline.norms)
    routed: RoutedEmbedder = strategy.apply(embedder, config.pipeline.routes)
    best = folder / BEST
    if best.exists():
        checkpoint.load_module(best, routed)
        return routed
    tensors = checkpoint.read_module(folder, "model")
    if tensors is None:
        raise UserError(f"{folder} holds no checkpoint: only --route main can be opened")
    with torch.no_grad():
        routed.load_state_dict(tensors, strict=True)
    return routed
