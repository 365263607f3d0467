"""How many pairs of pictures there are, and how many of them a sampler's batches visit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dmltk.data.samplers import BalancedBatches, PairBatches, Urn

Batches = BalancedBatches | PairBatches
Array = np.ndarray


class Coverage:
    """Which of the n·(n − 1)/2 pairs of n pictures were visited so far; a byte each.

    Args:
        pictures: n.
    """

    def __init__(self, pictures: int) -> None:
        self.pictures = pictures
        self.visited = torch.zeros(pictures * (pictures - 1) // 2, dtype=torch.bool)

    def add(self, rows: Tensor, first: Tensor, second: Tensor) -> None:
        """Visit pairs of a batch; a picture with itself is none.

        Args:
            rows: (B,) the batch's pictures, 0..n-1.
            first: (P,) places in the batch.
            second: (P,) places in the batch.
        """
        one, other = rows[first].cpu(), rows[second].cpu()
        low, high = torch.minimum(one, other), torch.maximum(one, other)
        place = low * (2 * self.pictures - low - 1) // 2 + high - low - 1
        self.visited[place[low < high]] = True

    @property
    def count(self) -> int:
        """How many different pairs were visited."""
        return int(self.visited.sum())

    @property
    def share(self) -> float:
        """The part of all pairs that was visited; 1 where there is no pair."""
        return self.count / len(self.visited) if len(self.visited) else 1.0


def replay(batches: Batches, epochs: int) -> Coverage:
    """The pairs that the batches of the first epochs visit, exactly.

    A batch of classes visits all its pairs, a batch of pairs those of its adjacent rows.
    """
    coverage = Coverage(len(batches.labels))
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for rows in batches:
            coverage.add(torch.tensor(rows), *places(batches, len(rows)))
    return coverage


def places(batches: Batches, count: int) -> tuple[Tensor, Tensor]:
    """The two places in a batch of `count` rows of each pair that it is made for."""
    if isinstance(batches, PairBatches):
        return torch.arange(0, count, 2), torch.arange(1, count, 2)
    first, second = torch.triu_indices(count, count, offset=1)
    return first, second


def pairs(batches: Batches) -> dict[str, int]:
    """The different pairs there are to visit: those listed, or all of the pictures.

    Returns:
        ``all``, ``like`` and ``unlike``.
    """
    if isinstance(batches, PairBatches) and batches.pairs is not None:
        listed = batches.pairs.sort(dim=1).values.unique(dim=0)
        same = batches.labels[listed[:, 0]] == batches.labels[listed[:, 1]]
        return {"all": len(listed), "like": int(same.sum()), "unlike": int((~same).sum())}
    sizes = [len(rows) for rows in batches.rows]
    whole, like = len(batches.labels), sum(size * (size - 1) // 2 for size in sizes)
    every = whole * (whole - 1) // 2
    return {"all": every, "like": like, "unlike": every - like}


def a_batch(batches: Batches) -> dict[str, float]:
    """The pairs of a batch as a loss sees them, on average: a picture twice is like itself.

    Returns:
        ``all``, ``like`` and ``unlike``.
    """
    if isinstance(batches, PairBatches):
        share = 0.5
        if batches.pairs is not None:
            one, other = batches.labels[batches.pairs].T
            share = float((one == other).double().mean())
        like = batches.draws * share
        return {"all": batches.draws, "like": like, "unlike": batches.draws - like}
    groups, k, classes = batches.draws, batches.per_class, len(batches.rows)
    if batches.pile is Urn:
        again = groups * (groups - 1) / 2 / classes
    else:
        turns, more = divmod(groups, classes)
        again = classes * turns * (turns - 1) / 2 + more * turns
    every = groups * k * (groups * k - 1) // 2
    like = groups * k * (k - 1) / 2 + again * k * k
    return {"all": every, "like": like, "unlike": every - like}


def expected(batches: Batches, epochs: int) -> float:
    """The expected number of different pairs that the first epochs visit.

    Exact for batches of pairs, for batches drawn with replacement, and for classes in turn where
    no picture of a class comes twice in an epoch; where small classes do come round again, their
    visits in different batches are taken to be independent.

    Source: the probability that a pair of a class of n is in a batch of D of C classes with k
        pictures each is D/C · k(k − 1)/(n(n − 1)); for two classes of a and b pictures,
        D(D − 1)/(C(C − 1)) · k²/(ab). A pair met with probability p in an epoch is met in E
        epochs with probability 1 − (1 − p)^E.
    """
    if isinstance(batches, PairBatches) and batches.pairs is not None:
        return float(pairs(batches)["all"] if epochs else 0)
    sizes, many = np.unique([len(rows) for rows in batches.rows], return_counts=True)
    a, b = sizes[:, None].astype(float), sizes[None, :].astype(float)
    if isinstance(batches, PairBatches):
        like, unlike = _drawn_pairs(batches, sizes, a, b)
    elif batches.pile is Urn:
        like, unlike = _with_replacement(batches, a, b)
    else:
        like, unlike = _in_turn(batches, a, b)
    inside = many * sizes * (sizes - 1) / 2
    between = np.triu(many[:, None] * many[None, :] * a * b, 1)
    between += np.diag(many * (many - 1) / 2 * sizes.astype(float) ** 2)
    return float((inside * _ever(like, epochs)).sum() + (between * _ever(unlike, epochs)).sum())


def _ever(chance: Array, times: int) -> Array:
    """1 − (1 − p)^times, also for the smallest p."""
    with np.errstate(divide="ignore"):
        never = np.log1p(-np.clip(chance, 0, 1))
    return np.asarray(-np.expm1(times * never) if times else 0 * chance)


def _drawn_pairs(batches: PairBatches, sizes: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Chances in an epoch, of a pair in a class by its size, and between classes by both sizes."""
    classes = len(batches.rows)
    several = sum(len(rows) > 1 for rows in batches.rows)
    like = 0.5 / several * 2 / np.maximum(sizes * (sizes - 1.0), 1)
    unlike = 0.5 * 2 / (classes * (classes - 1)) / (a * b)
    draws = len(batches) * batches.draws
    return _ever(like, draws), _ever(unlike, draws)


def _with_replacement(batches: BalancedBatches, a: Array, b: Array) -> tuple[Array, Array]:
    """The same, by inclusion and exclusion over what a group of k pictures leaves out."""
    classes, k = len(batches.rows), batches.per_class

    def left_out(*shares: Array) -> Array:
        met = sum((1 - (1 - share) ** k for share in shares), np.zeros(1))
        return np.asarray((1 - met / classes) ** batches.draws)

    size = a[:, 0]
    like = 1 - 2 * left_out(1 / size) + left_out(np.minimum(2 / size, 1))
    unlike = 1 - left_out(1 / a) - left_out(1 / b) + left_out(1 / a, 1 / b)
    return _ever(like, len(batches)), _ever(unlike, len(batches))


def _in_turn(batches: BalancedBatches, a: Array, b: Array) -> tuple[Array, Array]:
    """The same for classes and pictures in turn: `turns` or one more groups of k of a class."""
    classes, k, length = len(batches.rows), batches.per_class, len(batches)
    turns, more = divmod(batches.draws, classes)
    extra = more / classes
    both = more * (more - 1) / max(classes * (classes - 1), 1)

    def dealt(size: Array, groups: int) -> Array:
        return np.minimum(groups * k, size)

    def chance(size: Array, groups: int) -> Array:
        held = dealt(size, groups)
        return held * (held - 1) / np.maximum(size * (size - 1), 1)

    size = a[:, 0]
    like = (1 - extra) * chance(size, turns) + extra * chance(size, turns + 1)
    low, high = ((dealt(a, n) / a, dealt(b, n) / b) for n in (turns, turns + 1))
    unlike = (
        both * high[0] * high[1]
        + (extra - both) * (high[0] * low[1] + low[0] * high[1])
        + (1 - 2 * extra + both) * low[0] * low[1]
    )
    once = -(-length * batches.draws // classes) * k <= a
    return (
        np.where(once[:, 0], length * like, _ever(like, length)),
        np.where(once | once.T, length * unlike, _ever(unlike, length)),
    )
