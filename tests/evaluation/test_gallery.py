"""Queries against a gallery set apart: all protocols and the judge, against plain loops."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dmltk import registry
from dmltk.attacks.attack import AttackResult
from dmltk.batch import Batch
from dmltk.data.division import divide
from dmltk.data.split import Memory, Split, number
from dmltk.evaluation.evaluate import Judge, Trial
from dmltk.evaluation.protocols import Embedded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

NAMES = ("clean", "query", "gallery", "all")


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_every_protocol_lays_out_queries_and_gallery_as_loops_do(asks: list[bool], draws) -> None:
    rows = list(range(len(asks)))
    draws.shuffle(rows)
    clean = of([*range(len(asks))], asks, 0.0)
    twins = of(rows, asks, 0.5)
    for name in NAMES:
        sides = registry.build("protocols", name)(clean, twins)
        asked, held = (twins if name in kinds else clean for kinds in (("query", "all"), NAMES[2:]))
        queries = [(float(z), int(y)) for z, y, i in listed(asked) if asks[i]]
        gallery = [(float(z), int(y)) for z, y, i in listed(held) if not asks[i]]
        assert list(zip(sides.query[:, 0].tolist(), sides.query_labels.tolist(), strict=True)) == (
            queries
        )
        assert list(
            zip(sides.gallery[:, 0].tolist(), sides.gallery_labels.tolist(), strict=True)
        ) == (gallery)
        assert sides.query_index.tolist() == [-1] * len(queries)


def of(rows: list[int], asks: list[bool], shift: float) -> Embedded:
    index = torch.tensor(rows, dtype=torch.long)
    return Embedded(index[:, None] + shift, index % 3, index, torch.tensor(asks)[index])


def listed(pictures: Embedded) -> list[tuple[Tensor, Tensor, int]]:
    return list(
        zip(pictures.embeddings[:, 0], pictures.labels, pictures.index.tolist(), strict=True)
    )


class Means(nn.Module):
    """The mean of each colour."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


@dataclass
class Shift:
    """Adds a little of its own draws to each picture, and remembers what it got and made."""

    threat = SimpleNamespace(largest=0.1, norm="linf")

    def __post_init__(self) -> None:
        self.batches: list[Batch] = []
        self.made: list[tuple[Tensor, Tensor]] = []

    def __call__(self, embed: nn.Module, batch: Batch, generator: torch.Generator) -> AttackResult:
        self.batches.append(batch)
        moves = torch.rand(len(batch.images), 3, 1, 1, generator=generator)
        images = (batch.images + 0.1 * moves).clamp(0, 1)
        self.made += zip(batch.images, images, strict=True)
        largest = (images - batch.images).abs().amax((1, 2, 3))
        zeros = torch.zeros(len(images))
        return AttackResult(images, zeros, zeros, largest, largest, 0, 0, 0)


PARTS = ["train", *["query", "gallery", "gallery"] * 8]
LABELS = [9, *[(7 * row) % 5 for row in range(24)]]


def split() -> Split:
    pixels = torch.rand(25, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    pixels = pixels.mean((2, 3), keepdim=True).mul(2).sub(0.5).clamp(0, 1).expand(-1, 3, 4, 4)
    labels, names = number(LABELS)
    return divide(Memory(pixels.contiguous()), labels, names, card={}, parts=PARTS).test


def judged(names: tuple[str, ...], rows: list[int] | None = None) -> tuple[list[Any], Shift]:
    pictures, attack = split(), Shift()
    metrics = [registry.build("metrics", name) for name in ("recall:ks=[1]", "map@r")]
    protocols = {name: registry.build("protocols", name) for name in names}
    judge = Judge(
        pictures,
        protocols,
        metrics,
        5,
        list(range(len(pictures))) if rows is None else rows,
        lambda name, first: torch.Generator().manual_seed(first),
        lambda *_: None,
    )
    return judge(Means(), [Trial("shift", "shift", attack)]), attack


def loops(query: dict[int, Tensor], gallery: dict[int, Tensor], labels: Tensor) -> dict[int, bool]:
    """For each query that has its class in the gallery: whether its nearest item is of it."""
    found = {}
    for row, z in query.items():
        items = [
            (float((z - g).double().square().sum()), bool(labels[j] == labels[row]))
            for j, g in gallery.items()
        ]
        if any(same for _, same in items):
            found[row] = min(items)[1]
    return found


def test_recall_and_success_are_those_of_loops_over_queries_and_gallery() -> None:
    pictures = split()
    entries, attack = judged(NAMES)
    embed = Means()
    clean = embed(pictures.pictures.read(range(24)))
    moved = {row_of(image, pictures): embed(made[None])[0] for image, made in attack.made}
    assert sorted(moved) == list(range(24))
    asked = {row: clean[row] for row in pictures.queries}
    held = {row: clean[row] for row in range(24) if row not in asked}
    before = loops(asked, held, pictures.labels)
    assert 0 < len(before) <= 8 and any(before.values()) and not all(before.values())
    for entry in entries:
        name = entry["protocol"]
        query = {r: moved[r] if name in ("query", "all") else clean[r] for r in asked}
        gallery = {r: moved[r] if name in ("gallery", "all") else clean[r] for r in held}
        after = loops(query, gallery, pictures.labels)
        assert entry["metrics"]["recall@1"] == pytest.approx(sum(after.values()) / len(after))
        assert entry["counts"] == {"queries": 8, "excluded": 8 - len(after)}
        if name != "clean":
            lost = [row for row, hit in before.items() if hit and not after[row]]
            assert entry["attack_stats"]["success"] == len(lost) / sum(before.values())


def row_of(image: Tensor, pictures: Split) -> int:
    gaps = (pictures.pictures.read(range(24)) - image).abs().amax((1, 2, 3))
    return int(gaps.argmin())


def test_an_attack_refers_to_the_gallery_alone_and_queries_are_not_in_it() -> None:
    pictures = split()
    held = [row for row in range(24) if row not in pictures.queries]
    _, attack = judged(("query", "gallery"))
    clean = Means()(pictures.pictures.read(range(24)))
    for batch in attack.batches:
        assert batch.reference is not None and batch.index is not None
        assert torch.equal(batch.reference.embeddings, clean[held])
        assert torch.equal(batch.reference.labels, pictures.labels[held])
        rows = [row_of(image, pictures) for image in batch.images]
        assert batch.index.tolist() == [held.index(r) if r in held else -1 for r in rows]


def test_what_is_made_of_queries_does_not_hang_on_the_gallery_being_attacked() -> None:
    alone, attack = judged(("query",), rows=split().queries)
    both, _ = judged(NAMES)
    assert sum(len(batch.images) for batch in attack.batches) == 8
    assert (
        next(entry for entry in both if entry["protocol"] == "query")["metrics"]
        == (alone[0]["metrics"])
    )
