"""Losses around another loss: a memory of past batches, and two views of each picture."""

from __future__ import annotations

from pytorch_metric_learning import losses

from dmltk.errors import UserError
from dmltk.losses.corrected import CrossBatchMemory
from dmltk.losses.loss import MetricLoss
from dmltk.losses.pml import Count, Part, part


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
    inner = _supported(loss, "crossbatchmemory", losses.CrossBatchMemory)
    chosen = part("miner", miner) or inner.miner
    memory = CrossBatchMemory(inner.inner, embedding_size, memory_size, chosen)
    return MetricLoss(memory, name="crossbatchmemory", lr=inner.lr, classes=inner.classes)


def selfsupervised(loss: MetricLoss, symmetric: bool = True) -> MetricLoss:
    """Another loss on two views of each picture, each picture its own class.

    Args:
        loss: the loss applied, as a spec, such as `ntxent`.
        symmetric: both views are anchors; else only the first.

    Source: Chen et al. 2020, A Simple Framework for Contrastive Learning, equation 1.
    """
    inner = _supported(loss, "selfsupervised", losses.SelfSupervisedLoss)
    if inner.miner is not None:
        raise UserError(
            f"loss 'selfsupervised' looks at all pairs: write {inner.name}(miner=none) inside it"
        )
    wrapped = losses.SelfSupervisedLoss(inner.inner, symmetric=symmetric)
    return MetricLoss(wrapped, name="selfsupervised", takes="views", lr=inner.lr)


def multiplelosses() -> MetricLoss:
    """A weighted sum of losses; refused here, as several terms of a pipeline are that sum."""
    raise UserError(
        "loss 'multiplelosses' is not needed: give the pipeline one term a loss, each with its "
        "weight"
    )


def _supported(loss: MetricLoss, name: str, wrapper: type[losses.BaseLossWrapper]) -> MetricLoss:
    supported = wrapper.supported_losses()
    if not isinstance(loss, MetricLoss) or type(loss.inner).__name__ not in supported:
        names = ", ".join(cls.removesuffix("Loss").lower() for cls in supported)
        raise UserError(f"loss '{name}' cannot hold this loss: it takes {names}")
    return loss
