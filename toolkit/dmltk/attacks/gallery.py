"""What a picture is ranked against: a reference without the picture's own row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from dmltk.attacks.probe import Probe
from dmltk.batch import Batch
from dmltk.errors import UserError

__all__ = ["Gallery", "distances", "share_nearer"]

CELLS = 1 << 26
"""Most numbers that a gradient of distances holds at once: pictures times items times dimensions.

On a GPU torch's own backward of cdist takes them all, and fails beyond 2^31.
"""


@dataclass(frozen=True)
class Gallery:
    """The items of a reference, and which of them each picture may meet.

    Args:
        pool: (G, D) embeddings.
        others: (N, G) which rows are another picture's; the own row is left out by index.
        clean: (N, D) embeddings of the pictures before the attack.
        labels: (G,) of the items.
    """

    pool: Tensor
    others: Tensor
    clean: Tensor
    labels: Tensor

    @classmethod
    def of(cls, probe: Probe, batch: Batch, goal: str) -> Gallery:
        """The gallery of a batch.

        Args:
            probe: gives the clean embeddings, where a picture has no row in the reference.
            batch: with a reference and its index.
            goal: for the errors.

        Raises:
            UserError: no reference, no index, an index beyond the reference, or a reference
                without another item.
        """
        if batch.reference is None:
            raise UserError(f"{goal} ranks a reference: give the batch one")
        if batch.index is None:
            raise UserError(
                f"{goal} leaves a picture's own row out by index: give the batch its index,"
                " -1 for a picture that is not in the reference"
            )
        device = batch.images.device
        double = batch.images.dtype == torch.float64
        pool = batch.reference.embeddings.to(device, torch.float64 if double else torch.float32)
        index = batch.index.to(device)
        if int(index.max()) >= len(pool):
            raise UserError(
                f"{goal} was given row {int(index.max())} as a picture's own and the reference has"
                f" {len(pool)}: number rows from 0, -1 for a picture that is not in it"
            )
        clean: Tensor = pool[index] if bool((index >= 0).all()) else probe.embed(batch.images)
        others = index[:, None] != torch.arange(len(pool), device=device)
        if not bool(others.any(1).all()):
            raise UserError(f"{goal} needs a reference with another item than the picture itself")
        labels = batch.reference.labels.to(device)
        return cls(pool, others, clean, labels)

    def order(self, allowed: Tensor) -> Tensor:
        """(N, G) rows from the nearest clean one on, the lower first of two; the barred last."""
        found = distances(self.clean, self.pool).masked_fill(~allowed, math.inf)
        return found.argsort(dim=1, stable=True)

    def nearest(self, allowed: Tensor) -> Tensor:
        """(N,) the nearest clean row among the allowed."""
        return self.order(allowed)[:, 0]

    def draw(self, count: int, share: float, generator: Generator, goal: str) -> Tensor:
        """(N, count) rows of others, none twice for a picture.

        Args:
            count: how many.
            share: of the others, the nearest ones, from which they are drawn; at least `count`.
            generator: on the CPU.
            goal: for the error.

        Raises:
            UserError: fewer others than `count`.
        """
        most = int(self.others.sum(1).min())
        if most < count:
            raise UserError(
                f"{goal} asks for {count} items and the reference has {most} beside the picture:"
                " ask for fewer"
            )
        within = max(count, int(share * most + 1e-9))
        order = self.order(self.others)[:, :within]
        keys = torch.rand(order.shape, generator=generator, dtype=torch.float64)
        return order.gather(1, keys.argsort(1)[:, :count].to(order.device))


def share_nearer(distance: Tensor, bound: Tensor, allowed: Tensor, *, ties: bool) -> Tensor:
    """(N,) the share of the allowed items that are nearer than a bound.

    Args:
        distance: (N, G) of the items.
        bound: (N, 1) distances.
        allowed: (N, G) which items count.
        ties: whether an item exactly as far counts as nearer.
    """
    ahead = distance <= bound if ties else distance < bound
    return (ahead & allowed).sum(1) / allowed.sum(1).clamp_min(1)


def distances(z: Tensor, pool: Tensor) -> Tensor:
    """(N, G) Euclidean distances; their gradient at zero is zero."""
    rows = max(1, CELLS // max(1, z.numel()))
    parts = [
        torch.cdist(z, part, compute_mode="donot_use_mm_for_euclid_dist")
        for part in pool.split(rows)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
