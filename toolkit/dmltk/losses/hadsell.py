"""The Siamese pair loss as it was first published: squared distances, no scaling to unit length."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError

__all__ = ["Hadsell", "hadsell"]


class Hadsell(nn.Module):
    """Half the squared distance of like pairs, half the squared shortfall of unlike ones.

    Args:
        margin: the distance from which an unlike pair costs nothing.
        pairs: ``all`` pairs of the batch, or ``adjacent`` rows: 0 and 1, 2 and 3, and so on.
        per_margin: whether the value is divided by margin².
    """

    dmltk_kind = "losses"
    name = "hadsell"
    takes = "labels"

    def __init__(
        self, margin: float = 1.0, pairs: str = "all", *, per_margin: bool = False
    ) -> None:
        super().__init__()
        self.margin, self.pairs, self.per_margin = margin, pairs, per_margin
        self.inactive = 0

    def forward(
        self, embeddings: Tensor, labels: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """The mean over pairs of y·½d² + (1 − y)·½·max(0, margin − d)², y = 1 for a like pair.

        At d = 0 the distance has no slope; it is taken to be zero.

        Args:
            embeddings: (N, D), of any length.
            labels: (N,) integers; like pairs share one.
            index: not used.

        Returns:
            A scalar, float32 at least; a connected zero where there is no pair or all cost nothing.
        """
        if labels is None or len(labels) != len(embeddings):
            raise DmltkError("loss 'hadsell' needs a label for each embedding")
        with torch.autocast(embeddings.device.type, enabled=False):
            wide = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            first, second = self.rows(len(wide), wide.device)
            same = labels.to(wide.device)[first] == labels.to(wide.device)[second]
            cost = self.costs(torch.linalg.vector_norm(wide[first] - wide[second], dim=1), same)
            if not len(cost) or not cost.any():
                self.inactive += 1
                return wide.sum() * 0
            return cost.mean() / (self.margin**2 if self.per_margin else 1.0)

    def costs(self, distance: Tensor, same: Tensor) -> Tensor:
        """What each pair costs, from its distance and whether it is a like one."""
        short = (self.margin - distance).clamp(min=0)
        return torch.where(same, distance, short).square() / 2

    def rows(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The two rows of each pair.

        Raises:
            UserError: an odd batch has no adjacent pairs.
        """
        if self.pairs == "all":
            first, second = torch.triu_indices(count, count, offset=1, device=device)
            return first, second
        if count % 2:
            raise UserError(f"loss 'hadsell:pairs=adjacent' got an odd batch of {count} pictures")
        rows = torch.arange(count, device=device).view(-1, 2)
        return rows[:, 0], rows[:, 1]


def hadsell(
    *,
    margin: Annotated[float, Meta(gt=0)] = 1.0,
    pairs: Literal["all", "adjacent"] = "all",
    per_margin: bool = False,
) -> Hadsell:
    """Siamese pair loss: ½d² of like pairs, ½·max(0, margin − d)² of unlike ones, d Euclidean.

    Made for embeddings that are not scaled to unit length (`unit=false`); where they are, no
    distance exceeds 2. `contrastive` is another loss: linear in the distance.

    Args:
        margin: the distance from which an unlike pair costs nothing; a mere unit of length, but
            with a learning rate that is kept, a large one makes steps too long.
        pairs: `all` pairs of the batch, or `adjacent` rows only, for a batch of drawn pairs.
        per_margin: divide the value by margin², which for plain gradient descent is a learning
            rate of lr / margin² and lets values of several margins be compared.

    Source: Hadsell, Chopra and LeCun 2006, Dimensionality reduction by learning an invariant
        mapping, equation 4 (like pairs are 1 here).
    """
    return Hadsell(margin, pairs, per_margin=per_margin)


hadsell.facts = {  # type: ignore[attr-defined]
    "takes": "embeddings and labels",
    "compares by": "euclidean, not scaled to unit length",
}
