"""A loss over embeddings, in float32 and always connected to the graph."""

from __future__ import annotations

import math

import torch
from pytorch_metric_learning.losses import GenericPairLoss, SelfSupervisedLoss
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError
from dmltk.losses import room
from dmltk.losses.requirements import LOSSES, Loss


class MetricLoss(nn.Module):
    """A loss of pytorch-metric-learning with its miner, as the toolkit calls it.

    Everything is computed in float32 with autocast off. Where no pair of the batch is active the
    result is a zero connected to the graph, and `inactive` counts it.

    Args:
        inner: the loss itself.
        miner: chooses the pairs or triplets that `inner` looks at; None for all.
        name: for errors.
        lr: learning rate of the loss's own parameters; None for the model's.
        classes: the number of classes it has proxies for; None where it has none.
        size: the length of the embeddings that it is made for; None for any.
    """

    dmltk_kind = "losses"

    def __init__(
        self,
        inner: nn.Module,
        miner: nn.Module | None = None,
        *,
        name: str,
        lr: float | None = None,
        classes: int | None = None,
        size: int | None = None,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.miner = miner
        self.name = name
        facts = LOSSES.get(type(inner).__name__)
        self.takes = facts.takes if isinstance(facts, Loss) else "labels"
        self.lr = lr if any(True for _ in inner.parameters()) else None
        self.classes = classes
        self.size = size
        self.inactive = 0

    def forward(
        self, *embeddings: Tensor, labels: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: (N, D), one tensor; two where the loss compares views.
            labels: (N,) integers.
            index: each picture's row in the data set; not used by these losses.

        Returns:
            A float32 scalar.

        Raises:
            DmltkError: where the loss cannot take this batch, with its reason.
        """
        self._check_embeddings(embeddings)
        if self.takes == "labels":
            self._check_labels(labels, len(embeddings[0]))
        vectors = [embedding.float() for embedding in embeddings]
        if labels is not None:
            labels = labels.to(vectors[0].device)
        try:
            with torch.autocast(vectors[0].device.type, enabled=False):
                value = self._value(vectors, labels).reshape(())
        except (ValueError, AssertionError, IndexError, KeyError, NotImplementedError) as error:
            raise DmltkError(
                f"loss '{self.name}' cannot take this batch of {len(vectors[0])}: "
                f"{type(error).__name__}: {error}"
            ) from error
        amount = value.item()
        if amount == 0 or (math.isnan(amount) and _pairless(labels, len(vectors[0]))):
            self.inactive += 1
            return torch.stack([vector.sum() * 0 for vector in vectors]).sum()
        return value

    def _value(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        if self.takes == "views":
            if isinstance(self.inner, SelfSupervisedLoss):
                room.check_views(self.inner.loss, vectors[0], self.inner.symmetric)
            return self.inner(vectors[0], ref_emb=vectors[1])
        if self.takes == "pictures" or labels is None:
            return self.inner(vectors[0])
        if self.miner is None:
            room.check(self.inner, labels)
            return self.inner(vectors[0], labels)
        room.check(self.miner, labels)
        chosen = self._mined(vectors[0], labels)
        room.check(self.inner, labels, None, chosen)
        return self.inner(vectors[0], labels, chosen)

    def _mined(self, vectors: Tensor, labels: Tensor | None) -> tuple[Tensor, ...]:
        """The miner's choice, a single pair written twice where the library would drop it.

        GenericPairLoss takes one positive and one negative pair for an empty choice; the losses
        that mark pairs in a matrix are the same with a pair named twice.
        """
        chosen = self.miner(vectors, labels)  # type: ignore[misc]
        inner = self.inner
        marks = isinstance(inner, GenericPairLoss) and inner.loss_method == inner.mat_based_loss
        if marks and all(len(part) <= 1 for part in chosen):
            return tuple(part.repeat(2) for part in chosen)
        return chosen

    def _check_embeddings(self, embeddings: tuple[Tensor, ...]) -> None:
        wanted = 2 if self.takes == "views" else 1
        if len(embeddings) != wanted:
            tensors = "two views of each picture" if wanted == 2 else "one embeddings tensor"
            join = "join: args" if wanted == 2 else "join: each or cat"
            raise UserError(
                f"loss '{self.name}' takes {tensors}, got {len(embeddings)}: use {join} in its term"
            )
        count, size = embeddings[0].shape
        if self.size not in (None, size):
            raise UserError(
                f"loss '{self.name}' is made for embeddings of {self.size} numbers, got {size}:"
                " leave embedding_size to the run"
            )
        if count < getattr(self.inner, "K", 0):
            raise UserError(
                f"loss '{self.name}' needs a batch of at least K={self.inner.K} pictures, "
                f"got {count}"
            )
        if count > getattr(self.inner, "memory_size", count):
            raise UserError(
                f"loss '{self.name}' keeps memory_size={self.inner.memory_size} embeddings and got"
                f" {count}: keep at least a batch"
            )

    def _check_labels(self, labels: Tensor | None, count: int) -> None:
        if labels is None:
            raise UserError(f"loss '{self.name}' needs the labels of the pictures")
        if len(labels) != count:
            raise DmltkError(f"loss '{self.name}' got {count} embeddings and {len(labels)} labels")
        if self.classes is not None and len(labels):
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high >= self.classes:
                raise UserError(
                    f"loss '{self.name}' has proxies for labels 0 to {self.classes - 1}, "
                    f"got {low if low < 0 else high}: set num_classes, and use it only on the "
                    "classes it was trained with"
                )


def _pairless(labels: Tensor | None, count: int) -> bool:
    """Whether no two pictures share a label, or all do."""
    return count < 2 or (labels is not None and len(labels.unique()) in (1, count))
