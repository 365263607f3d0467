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
        _, counts = labels.unique(return_counts=True)
        rows = labels.argsort(stable=True).split(counts.tolist())
        self.rows = [part.tolist() for part in rows]
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
