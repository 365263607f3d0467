"""Losses around another loss: a memory of past batches, and two views of each picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pytorch_metric_learning import losses

from dmltk.errors import UserError
from dmltk.losses import fits
from dmltk.losses.corrected import CrossBatchMemory
from dmltk.losses.loss import MetricLoss
from dmltk.losses.pml import Count, Part, part, required
from dmltk.losses.requirements import LOSSES, REDUCERS, Loss, Reducer, short_name

Factory = TypeVar("Factory", bound=Callable[..., MetricLoss])


def _held(name: str) -> list[str]:
    """The losses that may stand in a wrapper."""
    return [
        short_name(cls)
        for cls, facts in LOSSES.items()
        if isinstance(facts, Loss) and name in facts.inside
    ]


def _showing(cls: str) -> Callable[[Factory], Factory]:
    """Gives a factory the facts that `dmltk show` prints."""

    def mark(factory: Factory) -> Factory:
        holds = ", ".join(_held(factory.__name__))
        factory.__dict__["facts"] = {**fits.rows(required(cls)), "holds": holds}
        return factory

    return mark


@_showing("CrossBatchMemory")
def crossbatchmemory(
    loss: MetricLoss, embedding_size: Count, memory_size: Count = 1024, miner: Part = None
) -> MetricLoss:
    """Another loss against the embeddings of past batches too.

    Args:
        loss: the loss applied, as a spec, such as `contrastive`.
        embedding_size: length of an embedding.
        memory_size: number of past embeddings kept; at least a batch.
        miner: chooses the pairs looked at; left out, the miner of `loss`.

    Source: Wang et al. 2020, Cross-Batch Memory for Embedding Learning.
    """
    inner = _fitting(loss, "crossbatchmemory")
    chosen = part("miner", miner) or inner.miner
    memory = CrossBatchMemory(inner.inner, embedding_size, memory_size, chosen)
    return MetricLoss(
        memory, name="crossbatchmemory", lr=inner.lr, classes=inner.classes, size=embedding_size
    )


@_showing("SelfSupervisedLoss")
def selfsupervised(loss: MetricLoss, symmetric: bool = True) -> MetricLoss:
    """Another loss on two views of each picture, each picture its own class.

    Args:
        loss: the loss applied, as a spec, such as `ntxent`.
        symmetric: both views are anchors; else only the first.

    Source: Chen et al. 2020, A Simple Framework for Contrastive Learning, equation 1.
    """
    inner = _fitting(loss, "selfsupervised")
    if inner.miner is not None:
        raise UserError(
            f"loss 'selfsupervised' looks at all pairs: write {inner.name}(miner=none) inside it"
        )
    wrapped = losses.SelfSupervisedLoss(inner.inner, symmetric=symmetric)
    return MetricLoss(wrapped, name="selfsupervised", lr=inner.lr)


def multiplelosses() -> MetricLoss:
    """A weighted sum of losses; refused here, as several terms of a pipeline are that sum."""
    raise fits.refusal("loss", "MultipleLosses")


def _fitting(loss: MetricLoss, name: str) -> MetricLoss:
    held = _held(name)
    cls = type(loss.inner).__name__ if isinstance(loss, MetricLoss) else ""
    if short_name(cls) not in held:
        raise UserError(f"loss '{name}' cannot hold this loss: it takes {', '.join(held)}")
    for module in loss.inner.modules():
        reducer = REDUCERS.get(type(module).__name__)
        if isinstance(reducer, Reducer) and name in reducer.outside:
            raise UserError(
                f"loss '{name}' cannot hold a loss with reducer"
                f" '{short_name(type(module).__name__)}': {reducer.why}"
            )
    return loss
