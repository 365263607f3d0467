"""Pseudo-labels: k-means clusters of the training pictures, for terms that ask for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from dmltk import seeds, stored
from dmltk.data.split import Split
from dmltk.errors import UserError
from dmltk.evaluation.evaluate import Judge, no_draws
from dmltk.evaluation.space import kmeans
from dmltk.pipelines.structure import Pipeline

_NAME = re.compile(r"clusters([1-9][0-9]*)")
KEY = "features"


def clusters(
    pipeline: Pipeline, split: Split, model: Any, *, features: str, batch: int, seed: int
) -> dict[str, Tensor]:
    """The cluster of each training picture, by the name that terms call it: ``clusters10``.

    Args:
        pipeline: whose terms name them as `labels`.
        split: N training pictures.
        model: a routed embedder whose start is clustered where there are no features.
        features: a safetensors file with the tensor ``features`` (N, F), in the split's order; or
            empty.
        batch: pictures a pass.
        seed: of the run.

    Returns:
        (N,) integers by name, empty where no term asks.

    Raises:
        UserError: more clusters than half the pictures, or features that do not fit.
    """
    objectives = (term for branch in pipeline.branches.values() for term in branch.objective)
    names = {term.labels for term in (*pipeline.terms, *objectives)}
    wanted = {name: int(found[1]) for name in names if (found := _NAME.fullmatch(name))}
    for name, count in wanted.items():
        if count > len(split) / 2:
            raise UserError(
                f"labels: {name} asks for {count} clusters of {len(split)} pictures:"
                " at most half as many are of use"
            )
    if features and not wanted:
        raise UserError(f"features={features} is for terms with labels: clustersN: there is none")
    if not wanted:
        return {}
    points = _read(features, len(split)) if features else _start(split, model, batch)
    array = points.double().numpy()
    return {
        name: torch.from_numpy(kmeans(array, count, seeds.derive(seed, name) % 2**32)).long()
        for name, count in sorted(wanted.items())
    }


def _start(split: Split, model: Any, batch: int) -> Tensor:
    training = model.training
    embed = model.at("main").eval()
    found = Judge(split, {}, [], batch, (), no_draws, lambda *_: None).embed(embed)
    model.train(training)
    return found.gallery.embeddings


def _read(file: str, count: int) -> Tensor:
    try:
        found = stored.read(Path(file))[0].get(KEY)
    except (SafetensorError, OSError) as error:
        raise UserError(f"features={file} cannot be read as safetensors: {error}") from None
    if found is None or found.ndim != 2 or len(found) != count or not found.isfinite().all():
        shape = "nothing" if found is None else f"numbers {tuple(found.shape)}"
        raise UserError(
            f"features={file} holds {shape} as '{KEY}': one row of finite numbers for each of the"
            f" {count} training pictures is needed"
        )
    return found.float()
