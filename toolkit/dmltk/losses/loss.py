"""A loss over embeddings, in float32 and always connected to the graph."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pytorch_metric_learning.losses import GenericPairLoss
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError

Takes = Literal["labels", "pictures", "views"]


class MetricLoss(nn.Module):
    """A loss of pytorch-metric-learning with its miner, as the toolkit calls it.

    Everything is computed in float32 with autocast off. Where no pair of the batch is active the
    result is a zero connected to the graph, and `inactive` counts it.

    Args:
        inner: the loss itself.
        miner: chooses the pairs or triplets that `inner` looks at; None for all.
        name: for errors.
        takes: `labels` (embeddings and labels), `pictures` (embeddings only) or `views`
            (two embeddings of each picture, no labels).
        lr: learning rate of the loss's own parameters; None for the model's.
        classes: the number of classes it has proxies for; None where it has none.
    """

    dmltk_kind = "losses"

    def __init__(
        self,
        inner: nn.Module,
        miner: nn.Module | None = None,
        *,
        name: str,
        takes: Takes = "labels",
        lr: float | None = None,
        classes: int | None = None,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.miner = miner
        self.name = name
        self.takes = takes
        self.lr = lr if any(True for _ in inner.parameters()) else None
        self.classes = classes
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
        self._check(embeddings, labels)
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
        if amount == 0 or (math.isnan(amount) and _pairless(labels)):
            self.inactive += 1
            return torch.stack([vector.sum() * 0 for vector in vectors]).sum()
        return value

    def _value(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        if self.takes == "views":
            return self.inner(vectors[0], ref_emb=vectors[1])
        if self.takes == "pictures":
            return self.inner(vectors[0])
        if self.miner is None:
            return self.inner(vectors[0], labels)
        return self.inner(vectors[0], labels, self._mined(vectors[0], labels))

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

    def _check(self, embeddings: tuple[Tensor, ...], labels: Tensor | None) -> None:
        wanted = 2 if self.takes == "views" else 1
        if len(embeddings) != wanted:
            tensors = "two views of each picture" if wanted == 2 else "one embeddings tensor"
            join = "join: args" if wanted == 2 else "join: each or cat"
            raise UserError(
                f"loss '{self.name}' takes {tensors}, got {len(embeddings)}: use {join} in its term"
            )
        proxies = getattr(self.inner, "K", 0)
        if len(embeddings[0]) < proxies:
            raise UserError(
                f"loss '{self.name}' needs a batch of at least K={proxies} pictures, "
                f"got {len(embeddings[0])}"
            )
        if self.takes != "labels":
            return
        if labels is None:
            raise UserError(f"loss '{self.name}' needs the labels of the pictures")
        if len(labels) != len(embeddings[0]):
            raise DmltkError(
                f"loss '{self.name}' got {len(embeddings[0])} embeddings and {len(labels)} labels"
            )
        if self.classes is not None and len(labels):
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high >= self.classes:
                raise UserError(
                    f"loss '{self.name}' has proxies for labels 0 to {self.classes - 1}, "
                    f"got {low if low < 0 else high}: set num_classes, and use it only on the "
                    "classes it was trained with"
                )


def _pairless(labels: Tensor | None) -> bool:
    """Whether no two pictures share a label, or all do."""
    return labels is not None and len(labels.unique()) in (0, 1, len(labels))
