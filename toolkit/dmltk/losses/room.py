"""How much a batch will take, counted from its labels before anything is allocated."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from dmltk.errors import UserError
from dmltk.losses.requirements import LOSSES, MINERS, Largest, Loss, Miner, short_name

INDEXED = 2**31 - 1
"""The numbers that torch can look up in one tensor."""

_BYTES: dict[Largest, float] = {
    "triplets": 44,
    "joined pairs": 1,
    "positives x negatives": 17,
    "positives x pictures": 18,
    "cube": 12,
}
"""The least that was held at the peak for each number of a loss's largest tensor (float32)."""

_WORDS: dict[Largest, str] = {
    "triplets": "triplets",
    "joined pairs": "comparisons of a positive and a negative pair",
    "positives x negatives": "comparisons of a positive and a negative pair",
    "positives x pictures": "comparisons of a positive pair and a picture",
    "cube": "comparisons of three pictures",
}


@dataclass(frozen=True)
class Counts:
    """What a batch is made of: pictures and references, ordered pairs and triplets."""

    pictures: int
    references: int
    positives: int
    negatives: int
    triplets: int

    def numbers(self, largest: Largest) -> int:
        """The numbers in a tensor of that kind."""
        return {
            "square": self.pictures * self.references,
            "triplets": self.triplets,
            "joined pairs": self.positives * self.negatives,
            "positives x negatives": self.positives * self.negatives,
            "positives x pictures": self.positives * self.references,
            "cube": self.pictures * self.references**2,
        }[largest]


def count(labels: Tensor, references: Tensor | None = None) -> Counts:
    """All pairs and triplets of a batch.

    Args:
        labels: (N,) of the anchors.
        references: (M,) of what they are compared with; None for the batch itself, where no
            picture is a pair with itself.
    """
    others = labels if references is None else references
    alike = (labels[:, None] == others[None]).sum(1)
    different = len(others) - alike
    if references is None:
        alike = alike - 1
    sums = torch.stack([alike.sum(), different.sum(), (alike * different).sum()]).tolist()
    return Counts(len(labels), len(others), *sums)


def check(
    user: nn.Module,
    labels: Tensor,
    references: Tensor | None = None,
    chosen: Sequence[Tensor] | None = None,
) -> None:
    """Refuse a batch for which there is no room.

    Args:
        user: a loss or a miner of pytorch-metric-learning.
        labels: (N,) of the batch.
        references: (M,) of what it is compared with; None for the batch itself.
        chosen: the pairs or triplets that it is given; None for all.

    Raises:
        UserError: with the numbers, and what to do.
    """
    largest = _largest(user, chosen)
    if largest == "square":
        return
    counts = count(labels, references)
    if chosen is not None:
        counts = replace(counts, positives=len(chosen[0]), negatives=len(chosen[-1]))
    numbers, room = counts.numbers(largest), memory(labels.device)
    least = numbers * _BYTES[largest]
    if least <= room and (numbers <= INDEXED or largest not in ("triplets", "joined pairs")):
        return
    what = "miner" if type(user).__name__ in MINERS else "loss"
    raise UserError(
        f"{what} '{short_name(type(user).__name__)}' would look at {numbers:,} {_WORDS[largest]}"
        f" in a batch of {counts.pictures}{_among(counts)}, {least / 1e9:,.0f} GB or more where"
        f" there are {room / 1e9:,.0f}: {_advice(largest, what, chosen)}"
    )


def check_views(user: nn.Module, views: Tensor, symmetric: bool) -> None:
    """The same for two views of each picture: both are anchors, or the first alone."""
    labels = torch.arange(len(views), device=views.device)
    if symmetric:
        check(user, labels.repeat(2))
    else:
        check(user, labels, labels.clone())


def _largest(user: nn.Module, chosen: Sequence[Tensor] | None) -> Largest:
    facts = LOSSES.get(type(user).__name__) or MINERS.get(type(user).__name__)
    if not isinstance(facts, Loss | Miner):
        return "square"
    if facts.largest != "triplets":
        return facts.largest
    if chosen is None:
        drawn = getattr(user, "triplets_per_anchor", "all") != "all"
        return "square" if drawn else "triplets"
    return "joined pairs" if len(chosen) == 4 else "square"


def _among(counts: Counts) -> str:
    return "" if counts.references == counts.pictures else f" among {counts.references}"


def _advice(largest: Largest, what: str, chosen: Sequence[Tensor] | None) -> str:
    if largest == "cube":
        return "take smaller batches"
    if what == "loss" and chosen is None:
        return "write miner=batchhard, or take smaller batches"
    return "take a miner that chooses fewer, such as batchhard, or smaller batches"


def memory(device: torch.device) -> int:
    """The bytes of memory that a device has; without bound where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
