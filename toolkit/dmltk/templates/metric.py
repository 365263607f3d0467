"""A metric for dmltk."""

from collections.abc import Callable

import torch
from torch import Tensor


def example() -> Callable[..., dict[str, float | None]]:
    """How near the nearest picture is: the mean distance from a query to it."""
    return nearest


def nearest(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """The mean distance from each query to the nearest other picture of the gallery.

    Args:
        query: (Nq, D) embeddings.
        gallery: (Ng, D) embeddings.
        query_labels: (Nq,) labels.
        gallery_labels: (Ng,) labels.
        query_index: (Nq,) each query's own row in the gallery, -1 where it has none.
    """
    distance = torch.cdist(query.double(), gallery.double())
    own = query_index[:, None] == torch.arange(len(gallery), device=query_index.device)
    found = distance.masked_fill(own, torch.inf).amin(1)
    found = found[found.isfinite()]
    return {"nearest": found.mean().item() if len(found) else None}
