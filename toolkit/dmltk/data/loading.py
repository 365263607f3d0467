"""Batches of a split, read in this process or by workers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from dmltk.data.split import Split, load


def batches(
    split: Split, sampler: Sampler[list[int]], *, workers: int = 0, seed: int = 0
) -> DataLoader[tuple[Tensor, Tensor, Tensor]]:
    """A loader of whole batches; each pass is one epoch of the sampler.

    The batches are the same, bit for bit, for any number of workers, and torch's global random
    state is left alone. Workers pay where pictures are decoded from files and do not fit in
    memory: each keeps its own store of what it decoded.

    Args:
        split: labelled pictures.
        sampler: gives the rows of a batch at a time.
        workers: processes that read ahead; 0 reads when asked, in this process.
        seed: of the workers' own random states.

    Returns:
        A loader of images float32 (n, 3, H, W) in [0, 1], labels (n,), index (n,).
    """
    return DataLoader(
        _Rows(split),
        batch_size=None,
        sampler=sampler,
        collate_fn=tuple,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(seed),
    )


class _Rows(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """A split whose items are batches, by their rows."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, rows: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        return load(self.split, rows)
