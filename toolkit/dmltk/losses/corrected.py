"""Losses of pytorch-metric-learning 2.9 mended where that library goes wrong.

Each keeps the library's name and arguments, and its values where those are right.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from pytorch_metric_learning import losses, reducers
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_weights
from torch import Tensor

from dmltk.losses import room


class DynamicSoftMarginLoss(losses.DynamicSoftMarginLoss):
    """Its running histogram leaves the graph, so that a second batch can go backward.

    It is a buffer too, and thus saved and put back with the loss; and what lies beyond its last
    bin falls into that one.
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

    def update_histogram(self, data: Tensor) -> None:
        """As in the library, each violation shared between its bin and the next."""
        super().update_histogram(self._within(data))

    def weigh_loss(self, data: Tensor) -> Tensor:
        """Each violation times the share of those that are no larger."""
        rank = torch.cumsum(self.hist_, 0)
        bins = ((self._within(data) - self.min_val) / self.delta).floor().long()
        return rank[bins] * data

    def _within(self, data: Tensor) -> Tensor:
        last = self.min_val + (self.num_bins - 1) * self.delta
        return data.clamp(self.min_val, last - 1e-4 * self.delta)


class HistogramLoss(losses.HistogramLoss):
    """Similarities of exactly 1 (duplicates) fall into the last bin, not past it."""

    def compute_density(self, distances: Tensor) -> Tensor:
        """The share of similarities at each bin's edge."""
        return super().compute_density(distances.clamp(-1, 1 - 1e-6))


class InstanceLoss(losses.InstanceLoss):
    """A picture is drawn to the first of its class in the batch.

    The library draws those of the batch's k-th class to its k-th picture, of whatever class.
    """

    def compute_loss(self, embeddings: Tensor, labels: Tensor, *arguments: Any) -> dict[str, Any]:
        """Cross-entropy over the similarities to all pictures of the batch."""
        logits = self.distance(embeddings) * self.gamma
        first = (labels[:, None] == labels[None]).int().argmax(1)
        return {
            "loss": {
                "losses": torch.nn.functional.cross_entropy(logits, first, reduction="none"),
                "indices": torch.arange(len(labels), device=labels.device),
                "reduction_type": "element",
            }
        }


class RankedListLoss(losses.RankedListLoss):
    """Temperatures are refused where their exponential overflows, and not frowned on below."""

    def __init__(
        self,
        margin: float,
        Tn: float,
        imbalance: float = 0.5,
        alpha: float | None = None,
        Tp: float = 0,
        **rest: Any,
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Values of Tp or Tn are too high")
            super().__init__(margin, Tn, imbalance, alpha, Tp, **rest)
        largest = max(Tn * self.alpha, Tp * (2 - self.alpha + margin))
        if largest > math.log(torch.finfo(torch.float32).max) - 8:
            raise ValueError(f"exp({largest:g}) is no float32: take lower temperatures Tn and Tp")


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


class ClassWeightedReducer(reducers.ClassWeightedReducer):
    """Each loss by its own class's weight, also where a loss gives them as a column."""

    def element_reduction_helper(self, values: Tensor, indices: Tensor, labels: Tensor) -> Tensor:
        """The mean of the weighted losses."""
        return super().element_reduction_helper(values.flatten(), indices, labels)


class PerAnchorReducer(reducers.PerAnchorReducer):
    """The same where a loss gives its pairs as a column."""

    def tuple_reduction_helper(self, values: Tensor, *arguments: Any) -> Tensor:
        """The mean over each anchor's pairs, then the inner reducer."""
        return super().tuple_reduction_helper(values.flatten(), *arguments)


class CrossBatchMemory(losses.CrossBatchMemory):
    """Its place in the queue is kept in the state dict, beside the queue.

    What a batch and the memory will take is counted first.
    """

    def create_indices_tuple(
        self, embeddings: Tensor, labels: Tensor, memory: Tensor, known: Tensor, *rest: Any
    ) -> Any:
        """The pairs or triplets of the batch and the memory."""
        if self.miner is not None:
            room.check(self.miner, labels, known)
        chosen = super().create_indices_tuple(embeddings, labels, memory, known, *rest)
        room.check(self.loss, labels, known, chosen)
        return chosen

    def get_extra_state(self) -> Tensor:
        """Where the next batch goes, and whether the memory has been filled once."""
        return torch.tensor([self.queue_idx, int(self.has_been_filled)])

    def set_extra_state(self, state: Any) -> None:
        """Take up the queue where `get_extra_state` left it."""
        self.queue_idx, self.has_been_filled = int(state[0]), bool(state[1])
