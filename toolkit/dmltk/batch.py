"""The two things an attack or a loss is told about: pictures, and embeddings to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Reference:
    """Embeddings that an attack may aim at, and their labels.

    Args:
        embeddings: (M, D), taken under the attacked route in eval mode.
        labels: (M,) integers.
    """

    embeddings: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Batch:
    """Pictures and what is known of them.

    Args:
        images: (N, C, H, W), float32 or float64 in [0, 1].
        labels: (N,) integers, or None where no label is known.
        index: (N,) each picture's own row in the data set (and in `reference`).
        reference: embeddings of a whole data set, where there are some.
        extra: further per-picture tensors by name, for terms that ask for them.
    """

    images: Tensor
    labels: Tensor | None = None
    index: Tensor | None = None
    reference: Reference | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
