"""The goal that climbs losses by name."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dmltk import registry
from dmltk.attacks.guard import seeded
from dmltk.attacks.probe import Objective, Probe
from dmltk.batch import Batch
from dmltk.errors import UserError
from dmltk.spec import Spec

LossSpec = str | Spec | nn.Module


class Terms:
    """Climbed losses: make the batch as bad as it can be for losses over its labels.

    loss = -(sum of the losses of the attacked embeddings), one number for the whole batch, so
    only the last iterate of a single start can be taken.

    Every step looks at a copy of the losses, so that a memory in them stays as it was, and what
    they draw at random is the same at every step.

    Args:
        losses: one loss or a list: specs such as `ntxent(temperature=.1)`, or from Python built
            losses, as for one whose own parameters were trained.
        num_classes: offered to losses that ask for it.
        embedding_size: offered to losses that ask for it.

    Source: Madry et al. 2018, Towards deep learning models resistant to adversarial attacks
    """

    joint = True

    def __init__(
        self,
        losses: LossSpec | Sequence[LossSpec],
        num_classes: int | None = None,
        embedding_size: int | None = None,
    ) -> None:
        given = [losses] if isinstance(losses, LossSpec) else list(losses)
        if not given:
            raise UserError("terms climbs losses and got none: write losses=[ntxent]")
        sizes = {"num_classes": num_classes, "embedding_size": embedding_size}
        offered = {name: size for name, size in sizes.items() if size is not None}
        self.losses = [_built(loss, offered) for loss in given]

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Notes the labels, and draws the seed of what the losses draw."""
        if batch.labels is None:
            raise UserError("terms needs labels: give the batch its labels")
        labels, index = batch.labels, batch.index
        seed = int(torch.randint(2**31, (), generator=generator))

        def objective(z: Tensor) -> Tensor:
            losses = [copy.deepcopy(loss).to(z.device) for loss in self.losses]
            with seeded(seed):
                return -torch.stack([loss(z, labels=labels, index=index) for loss in losses]).sum()

        return objective


def _built(loss: LossSpec, offered: Mapping[str, Any]) -> nn.Module:
    if isinstance(loss, nn.Module):
        return loss
    built: nn.Module = registry.build("losses", loss, context=offered)
    if any(True for _ in built.parameters()):
        warnings.warn(
            f"the goal terms climbs '{loss}' with fresh parameters of its own: from Python, hand "
            "over the loss that was trained",
            stacklevel=2,
        )
    return built
