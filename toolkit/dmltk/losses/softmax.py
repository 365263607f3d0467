"""A linear classifier on embeddings as a loss with parameters of its own."""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError

__all__ = ["Softmax", "softmax"]

NO_LABEL = -1


class Softmax(nn.Module):
    """Cross-entropy of a linear layer's scores; label -1 is none and costs nothing.

    Args:
        num_classes: scores a picture.
        embedding_size: length of an embedding.
        smoothing: share of the label that all classes get alike.
        lr: learning rate of the layer; None for the model's.
        seed: of the first weights.
    """

    dmltk_kind = "losses"
    name = "softmax"
    takes = "labels"

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        smoothing: float = 0.0,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(num_classes, embedding_size, generator=generator)
        self.weight = nn.Parameter(start / math.sqrt(embedding_size))
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.smoothing, self.lr = smoothing, lr
        self.inactive = 0

    def forward(
        self, embeddings: Tensor, labels: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """The mean cross-entropy of the pictures that have a label.

        Args:
            embeddings: (N, D).
            labels: (N,) integers from 0 to num_classes - 1, or -1 for none.
            index: not used.

        Returns:
            A float32 scalar; a connected zero where no picture has a label.
        """
        if labels is None or len(labels) != len(embeddings):
            raise DmltkError("loss 'softmax' needs a label for each embedding")
        classes, size = self.weight.shape
        if embeddings.shape[1] != size:
            raise UserError(
                f"loss 'softmax' is made for embeddings of {size} numbers, got"
                f" {embeddings.shape[1]}: leave embedding_size to the run"
            )
        labels = labels.to(embeddings.device)
        if len(labels) and not NO_LABEL <= int(labels.min()) <= int(labels.max()) < classes:
            raise UserError(
                f"loss 'softmax' has scores for labels 0 to {classes - 1}, got others:"
                " set num_classes"
            )
        with torch.autocast(embeddings.device.type, enabled=False):
            if not (labels != NO_LABEL).any():
                self.inactive += 1
                return embeddings.float().sum() * 0 + self.weight.sum() * 0
            scores = F.linear(embeddings.float(), self.weight, self.bias)
            return F.cross_entropy(
                scores, labels, ignore_index=NO_LABEL, label_smoothing=self.smoothing
            )


def softmax(
    num_classes: Annotated[int, Meta(ge=1)],
    embedding_size: Annotated[int, Meta(ge=1)],
    *,
    smoothing: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    lr: Annotated[float, Meta(gt=0)] | None = None,
    seed: int = 0,
) -> Softmax:
    """A linear classifier of the embeddings and its cross-entropy.

    The layer is the loss's own: what is kept of a model is the embedding below it. Pictures of
    label -1 cost nothing.

    Args:
        num_classes: number of classes in training; the labels are 0 to num_classes - 1.
        embedding_size: length of an embedding.
        smoothing: share of the label that all classes get alike.
        lr: learning rate of the layer; none for the model's.
        seed: of its first weights.

    Source: as in any classifier; Zhai and Wu 2019 for its use in metric learning.
    """
    return Softmax(num_classes, embedding_size, smoothing=smoothing, lr=lr, seed=seed)


softmax.facts = {  # type: ignore[attr-defined]
    "takes": "embeddings and labels",
    "needs": "num_classes, embedding_size",
    "trains": "a linear layer",
}
