"""Losses of pytorch-metric-learning 2.9 mended where that library goes wrong.

Each keeps the library's name and arguments, and its values where those are right.
"""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_weights
from torch import Tensor


class DynamicSoftMarginLoss(losses.DynamicSoftMarginLoss):
    """Its running histogram leaves the graph, so that a second batch can go backward.

    It is a buffer too, and thus saved and put back with the loss.
    """

    hist_: Tensor

    def __init__(
        self, min_val: float = -2.0, num_bins: int = 10, momentum: float = 0.01, **rest: Any
    ):
        super().__init__(min_val, num_bins, momentum, **rest)
        histogram = self.__dict__.pop("hist_")
        self.register_buffer("hist_", histogram)

    def compute_loss(self, *arguments: Any) -> dict[str, Any]:
        """As in the library, with the histogram detached after use."""
        result = super().compute_loss(*arguments)
        self.hist_ = self.hist_.detach()
        return result


class HistogramLoss(losses.HistogramLoss):
    """Similarities of exactly 1 (duplicates) fall into the last bin, not past it."""

    def compute_density(self, distances: Tensor) -> Tensor:
        """The share of similarities at each bin's edge."""
        return super().compute_density(distances.clamp(-1, 1 - 1e-6))


class SmoothAPLoss(losses.SmoothAPLoss):
    """Right for any batch; the library's only where classes are sorted, as many as their size."""

    def compute_loss(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Any, *references: Any
    ) -> dict[str, Any]:
        """One minus each picture's smoothed average precision, itself among its positives.

        Source: Brown et al. 2020, equation 7.
        """
        similarity = self.distance(embeddings)
        same = (labels[:, None] == labels[None]).to(similarity)
        # ahead[i, j, k]: how far k is before j in the ranking of i
        ahead = torch.sigmoid(
            (similarity[:, None, :] - similarity[:, :, None]) / self.temperature
        ) * (1 - torch.eye(len(labels), device=similarity.device))
        rank = 1 + ahead.sum(2)
        rank_among_same = 1 + (ahead * same[:, None, :]).sum(2)
        precision = (same * rank_among_same / rank).sum(1) / same.sum(1)
        weights = convert_to_weights(indices_tuple, labels, dtype=precision.dtype)
        return {
            "ap_loss": {
                "losses": (1 - precision) * weights,
                "indices": torch.arange(len(labels), device=similarity.device),
                "reduction_type": "element",
            }
        }


class TupletMarginLoss(losses.TupletMarginLoss):
    """Similarities of exactly 1 (duplicates) have an angle, and a gradient of zero."""

    def _compute_loss(self, pos_pairs: Any, neg_pairs: Any, indices_tuple: Any) -> dict[str, Any]:
        if len(pos_pairs):
            pos_pairs = pos_pairs.clamp(-1 + 1e-6, 1 - 1e-6)
        return super()._compute_loss(pos_pairs, neg_pairs, indices_tuple)


class CrossBatchMemory(losses.CrossBatchMemory):
    """Its place in the queue is kept in the state dict, beside the queue."""

    def get_extra_state(self) -> Tensor:
        """Where the next batch goes, and whether the memory has been filled once."""
        return torch.tensor([self.queue_idx, int(self.has_been_filled)])

    def set_extra_state(self, state: Any) -> None:
        """Take up the queue where `get_extra_state` left it."""
        self.queue_idx, self.has_been_filled = int(state[0]), bool(state[1])
