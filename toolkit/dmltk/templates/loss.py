"""A loss for dmltk."""

from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn


class Example(nn.Module):
    """Pairs of a class pulled together, those of two classes pushed below a cosine.

    Args:
        margin: cosine below which a pair of two classes costs nothing.

    Source: name the paper here.
    """

    def __init__(self, *, margin: Annotated[float, Meta(ge=-1, le=1)] = 0.3) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, z: Tensor, *, labels: Tensor, index: Tensor | None = None) -> Tensor:
        """A number from embeddings (N, D) and labels (N,), in float32 under autocast too."""
        with torch.autocast(z.device.type, enabled=False):
            unit = nn.functional.normalize(z.float(), dim=1)
            cosine = unit @ unit.T
            same = labels[:, None] == labels
            apart = torch.where(same, 1 - cosine, (cosine - self.margin).clamp_min(0))
            return apart.mean()
