"""Losses over embeddings: pytorch-metric-learning's by name, with miner, reducer and distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dmltk import registry

if TYPE_CHECKING:
    from dmltk.losses.loss import MetricLoss
    from dmltk.spec import Spec


def build(spec: str | Spec, *, context: Mapping[str, Any] | None = None, **args: Any) -> MetricLoss:
    """Build a loss: a module called `loss(*embeddings, labels=labels, index=None)` for a scalar.

    Args:
        spec: its name with arguments, such as `multisimilarity:miner=none,beta=50`.
        context: what the toolkit offers: num_classes, embedding_size, seed.
        args: further arguments of the loss.
    """
    return registry.build("losses", spec, context=context, **args)
