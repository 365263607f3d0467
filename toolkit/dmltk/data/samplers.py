"""Which pictures make up a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import Sampler

from dmltk import seeds
from dmltk.errors import UserError


class BalancedBatches(Sampler[list[int]]):
    """Batches of `batch // per_class` classes with `per_class` adjacent pictures each.

    Classes come round in turn, none twice in a batch while there are enough; so do the
    pictures of a class, and a class with too few repeats them. With replacement, every class
    and every picture of it is drawn anew, and may come twice in a batch. An epoch is N // batch
    batches (at least one) and depends on (seed, epoch) alone, so resuming is exact.

    Args:
        labels: (N,) integers.
        batch: pictures a batch, a multiple of `per_class`.
        per_class: pictures of each class in a batch.
        seed: of the order.
        with_replacement: whether classes and pictures are drawn with replacement.

    Source: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning (with replacement).
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        *,
        batch: int,
        per_class: int = 2,
        seed: int,
        with_replacement: bool = False,
    ) -> None:
        labels = torch.as_tensor(labels)
        if batch < 1 or per_class < 1 or batch % per_class:
            raise UserError(
                f"a batch of {batch} cannot hold {per_class} pictures of each class; "
                f"batch must be a positive multiple of per_class"
            )
        if not len(labels):
            raise UserError("no pictures to make batches of; check the data set")
        self.labels = labels
        self.rows = [part.tolist() for part in by_class(labels)]
        self.draws = batch // per_class
        self.per_class = per_class
        self.seed = seed
        self.pile = Urn if with_replacement else Deck
        self.epoch = 0
        self.length = max(1, len(labels) // batch)

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches the next iteration gives."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        generator = seeds.generator("batches", self.seed, self.epoch)
        classes = self.pile(range(len(self.rows)), generator)
        pictures = [self.pile(rows, generator) for rows in self.rows]
        for _ in range(self.length):
            drawn = classes.deal(self.draws)
            yield [row for label in drawn for row in pictures[label].deal(self.per_class)]


class PairBatches(Sampler[list[int]]):
    """Batches of `batch // 2` pairs, the two rows of a pair adjacent.

    Drawn from labels, each pair is like or unlike with equal probability, all draws with
    replacement: of a class with two pictures or more, two different ones; or a picture each of
    two different classes. Classes are alike likely. An epoch is N // batch batches, at least one.
    Of listed pairs, an epoch is the shuffled list once, so the last batch may be shorter.
    Either depends on (seed, epoch) alone, so resuming is exact.

    Args:
        labels: (N,) integers; like pairs share one.
        pairs: (M, 2) rows, the listed pairs; None draws pairs.
        batch: pictures a batch, even.
        seed: of the draws, or of the list's order.

    Raises:
        UserError: an odd batch, or only like or only unlike pairs: pulls alone bring all
            embeddings together, and pushes alone have no shape to end in.
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        pairs: Tensor | None = None,
        *,
        batch: int,
        seed: int,
    ) -> None:
        self.labels = torch.as_tensor(labels)
        if batch < 2 or batch % 2:
            raise UserError(f"a batch of {batch} cannot hold pairs; batch must be even")
        self.pairs = pairs
        self.draws = batch // 2
        self.seed = seed
        self.epoch = 0
        self.rows = by_class(self.labels)
        if pairs is None:
            like, unlike = any(len(rows) > 1 for rows in self.rows), len(self.rows) > 1
            self.length = max(1, len(self.labels) // batch)
        else:
            same = self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]]
            like, unlike = bool(same.any()), bool((~same).any())
            self.length = -(-len(pairs) // self.draws)
        if not (like and unlike):
            missing = "like" if not like else "unlike"
            raise UserError(
                f"there is no {missing} pair among the training pictures, and a loss of pairs"
                " needs both sorts: give two classes, and two pictures of one of them"
            )

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches the next iteration gives."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        generator = seeds.generator("pairs", self.seed, self.epoch)
        if self.pairs is not None:
            drawn = self.pairs[torch.randperm(len(self.pairs), generator=generator)]
        else:
            drawn = self._drawn(self.length * self.draws, generator)
        for pairs in drawn.split(self.draws):
            yield pairs.flatten().tolist()

    def _drawn(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, 2) rows of like and unlike pairs, half and half expected."""
        sizes = torch.tensor([len(rows) for rows in self.rows])
        rows, starts = torch.cat(self.rows), sizes.cumsum(0) - sizes
        several = (sizes > 1).nonzero().flatten()

        def below(bounds: int | Tensor) -> Tensor:
            whole = torch.randint(2**62, (count,), generator=generator)
            return whole % bounds

        like = below(2) == 0
        alike, first = several[below(len(several))], below(len(sizes))
        second = (first + 1 + below(len(sizes) - 1)) % len(sizes)
        classes = torch.stack([alike.where(like, first), alike.where(like, second)])
        one = below(sizes[classes[0]])
        apart = (one + 1 + below((sizes[classes[0]] - 1).clamp(min=1))) % sizes[classes[0]]
        other = apart.where(like, below(sizes[classes[1]]))
        return rows[starts[classes] + torch.stack([one, other])].T


def by_class(labels: Tensor) -> tuple[Tensor, ...]:
    """The rows of each class, in order."""
    _, counts = labels.unique(return_counts=True)
    return labels.argsort(stable=True).split(counts.tolist())


class Urn:
    """Items drawn with replacement, all alike likely."""

    def __init__(self, items: Sequence[int], generator: torch.Generator) -> None:
        self.items = list(items)
        self.generator = generator

    def deal(self, count: int) -> list[int]:
        """The next `count` items."""
        draws = torch.randint(len(self.items), (count,), generator=self.generator)
        return [self.items[place] for place in draws.tolist()]


class Deck:
    """Items dealt from a shuffled pile that is refilled when it runs out."""

    def __init__(self, items: Sequence[int], generator: torch.Generator) -> None:
        self.items = list(items)
        self.generator = generator
        self.pile: list[int] = []

    def deal(self, count: int) -> list[int]:
        """The next `count` items, none twice before each of the others came once."""
        hand: list[int] = []
        held: set[int] = set()
        while len(hand) < count:
            if not self.pile:
                order = torch.randperm(len(self.items), generator=self.generator)
                self.pile = [self.items[place] for place in order.tolist()]
            if len(held) == len(self.items):
                held.clear()
            fresh = [item for item in self.pile if item not in held][: count - len(hand)]
            taken = set(fresh)
            self.pile = [item for item in self.pile if item not in taken]
            hand += fresh
            held |= taken
        return hand
