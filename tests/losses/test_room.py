"""What a batch will take is counted before anything is allocated (PITFALLS 31)."""

from __future__ import annotations

import pytest
import torch
from dmltk import losses
from dmltk.errors import UserError
from dmltk.losses import room
from dmltk.losses.pml import part
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.utils import loss_and_miner_utils
from torch import Tensor

from .library import unit

CONTEXT = {"num_classes": 8, "embedding_size": 2, "seed": 0}
LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=9)
LARGE = torch.arange(8).repeat_interleave(500)
"""4000 pictures: 4000 · 499 · 3500 triplets."""


def batch(classes: int, each: int) -> tuple[Tensor, Tensor]:
    y = torch.arange(classes).repeat_interleave(each)
    return unit(len(y), size=2), y


@given(labels=LABELS)
def test_pairs_and_triplets_are_those_of_loops(labels: list[int]) -> None:
    rows = range(len(labels))
    positives = [(i, j) for i in rows for j in rows if i != j and labels[i] == labels[j]]
    negatives = [(i, j) for i in rows for j in rows if labels[i] != labels[j]]
    triplets = [(i, j, k) for i, j in positives for a, k in negatives if a == i]
    found = room.count(torch.tensor(labels))
    assert (found.pictures, found.references) == (len(labels), len(labels))
    assert (found.positives, found.negatives) == (len(positives), len(negatives))
    assert found.triplets == len(triplets)
    assert found.numbers("positives x negatives") == len(positives) * len(negatives)
    assert found.numbers("positives x pictures") == len(positives) * len(labels)
    assert found.numbers("cube") == len(labels) ** 3


@given(labels=LABELS, others=LABELS)
def test_counts_are_those_that_the_library_lists(labels: list[int], others: list[int]) -> None:
    y, references = torch.tensor(labels), torch.tensor(others)
    for against in (None, references):
        a, _, b, _ = loss_and_miner_utils.get_all_pairs_indices(y, against)
        triplets = loss_and_miner_utils.get_all_triplets_indices(y, against)
        found = room.count(y, against)
        assert (found.positives, found.negatives) == (len(a), len(b))
        assert found.triplets == len(triplets[0])


@pytest.mark.parametrize("name", ["tripletmargin", "margin", "histogram", "dynamicsoftmargin"])
def test_triplets_beyond_what_torch_can_index_are_refused_in_numbers(name: str) -> None:
    z = unit(len(LARGE), size=2)
    with pytest.raises(UserError) as error:
        losses.build(name, context=CONTEXT)(z, labels=LARGE)
    said = str(error.value)
    assert said.startswith(f"loss '{name}' would look at 6,986,000,000 triplets in a batch of 4000")
    assert "307 GB or more" in said and "miner=batchhard" in said and "\n" not in said


@pytest.mark.parametrize("miner", ["angular", "tripletmargin"])
def test_miners_that_list_all_triplets_are_refused_before_they_do(miner: str) -> None:
    loss = losses.build(f"contrastive:miner={miner}")
    with pytest.raises(UserError, match=rf"miner '{miner}' would look at 6,986,000,000 triplets"):
        loss(unit(len(LARGE), size=2), labels=LARGE)


def test_fewer_triplets_drawn_or_mined_are_let_through() -> None:
    z, y = batch(8, 100)
    for spec in ("tripletmargin:triplets_per_anchor=2", "tripletmargin:miner=batchhard"):
        assert losses.build(spec)(z, labels=y).isfinite()


def test_pairs_joined_to_triplets_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.arange(4).repeat_interleave(60)
    chosen = loss_and_miner_utils.get_all_pairs_indices(y)
    inner = losses.build("tripletmargin").inner
    room.check(inner, y, None, chosen)
    monkeypatch.setattr(room, "memory", lambda device: 10**8)
    with pytest.raises(UserError, match="611,712,000 comparisons of a positive and a negative"):
        room.check(inner, y, None, chosen)


SMALL = {
    "tripletmargin": 12 * 2 * 9 * 44,
    "ntxent": (12 * 2) * (12 * 9) * 17,
    "liftedstructure": (12 * 2) * (12 * 9) * 17,
    "tupletmargin": (12 * 2) * (12 * 9) * 17,
    "angular": (12 * 2) * 12 * 18,
    "pnp": 12**3 * 12,
    "smoothap": 12**3 * 12,
}


@pytest.mark.parametrize("name", SMALL)
def test_memory_is_that_of_the_largest_tensor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = batch(4, 3)
    loss = losses.build(name, context=CONTEXT)
    monkeypatch.setattr(room, "memory", lambda device: SMALL[name])
    assert loss(z, labels=y).isfinite()
    monkeypatch.setattr(room, "memory", lambda device: SMALL[name] - 1)
    with pytest.raises(UserError, match=f"loss '{name}' would look at"):
        loss(z, labels=y)


@pytest.mark.parametrize("name", ["contrastive", "multisimilarity", "proxyanchor", "supcon"])
def test_losses_of_a_square_are_never_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory", lambda device: 0)
    z, y = batch(4, 3)
    assert losses.build(name, context=CONTEXT)(z, labels=y).isfinite()


def test_the_memory_of_past_batches_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = losses.build("crossbatchmemory:ntxent,memory_size=36", context=CONTEXT)
    z, y = batch(4, 3)
    # the first batch meets itself; the second meets 24, of which 6 of each picture's class
    first, second = (12 * 2) * (12 * 9), (12 * 6 - 12) * (12 * 18)
    monkeypatch.setattr(room, "memory", lambda device: first * 17)
    assert loss(z, labels=y).isfinite()
    with pytest.raises(UserError, match=f"{second:,} comparisons .* a batch of 12 among 24, "):
        loss(z, labels=y)


def test_two_views_count_as_one_batch_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, z = losses.build("selfsupervised:ntxent"), unit(6, size=2)
    monkeypatch.setattr(room, "memory", lambda device: 12 * (12 * 10) * 17 - 1)
    with pytest.raises(UserError, match="loss 'ntxent' would look at 1,440 comparisons"):
        loss(z, z)
    monkeypatch.setattr(room, "memory", lambda device: 12 * (12 * 10) * 17)
    assert loss(z, z).isfinite()


def test_no_more_is_estimated_than_a_batch_holds_at_its_end() -> None:
    """The tensors that autograd keeps for a triplet, without those that come and go."""
    z, y = batch(6, 8)
    loss, kept = losses.build("tripletmargin"), []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (kept.append(t.untyped_storage()), t)[1], lambda t: t
    ):
        loss(z.requires_grad_(), labels=y)
    bytes_kept = sum({storage.data_ptr(): storage.nbytes() for storage in kept}.values())
    least = room.count(y).triplets * 44
    assert 0.5 * least < bytes_kept < 1.5 * least


def test_a_module_of_no_library_class_is_let_through() -> None:
    room.check(torch.nn.Identity(), LARGE)
    assert part("miner", None) is None
    assert room.memory(torch.device("cpu")) > 10**8
