"""Cross-batch memory: a queue of past embeddings, by loops."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from dmltk import losses
from dmltk.errors import UserError
from pytorch_metric_learning import losses as library
from torch import Tensor
from torch.nn.functional import normalize

from .library import unit

CONTEXT = {"num_classes": 6, "embedding_size": 8, "seed": 3}
HELD = [name.removesuffix("Loss").lower() for name in library.CrossBatchMemory.supported_losses()]


def contrastive(z: Tensor, y: Tensor, queue: list[tuple[int, Tensor, int]], first: int) -> Tensor:
    """The batch against the queue, an entry never against itself."""
    positive, negative = [], []
    for i, (number, other, label) in itertools.product(range(len(z)), queue):
        gap = (normalize(z[i], dim=0) - other).norm()
        if label != int(y[i]):
            negative.append((1 - gap).clamp_min(0))
        elif number != first + i:
            positive.append(gap)
    total = z.sum() * 0
    for part in (positive, negative):
        active = [value for value in part if value > 0]
        total = total + (torch.stack(active).mean() if active else 0)
    return total


def test_the_memory_is_a_queue_of_the_last_embeddings() -> None:
    loss = losses.build("crossbatchmemory:contrastive,memory_size=16", context=CONTEXT)
    queue: list[tuple[int, Tensor, int]] = []
    for turn in range(5):  # 30 entries: the queue of 16 goes round once
        z, y = unit(6, turn).requires_grad_(), torch.arange(6) % 4
        queue += [(6 * turn + i, z[i].detach(), int(y[i])) for i in range(6)]
        queue = queue[-16:]
        value, expected = loss(z, labels=y), contrastive(z, y, queue, 6 * turn)
        torch.testing.assert_close(value, expected)
        slopes = [torch.autograd.grad(v, z, retain_graph=True)[0] for v in (value, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", HELD)
def test_every_loss_that_it_holds_trains_over_several_batches(name: str) -> None:
    loss = losses.build(f"crossbatchmemory:{name},memory_size=16", context=CONTEXT)
    values = []
    for turn in range(4):
        z = unit(6, turn).requires_grad_()
        value = loss(z, labels=torch.arange(6) % 3)
        value.backward()
        assert value.isfinite() and z.grad is not None and z.grad.isfinite().all()
        values.append(value.item())
    assert len(set(values)) > 1


def test_the_miner_of_the_inner_loss_is_taken_and_may_be_another() -> None:
    inner = losses.build("crossbatchmemory:multisimilarity", context=CONTEXT).inner
    assert type(inner.miner).__name__ == "MultiSimilarityMiner"
    other = losses.build("crossbatchmemory:multisimilarity,miner=pairmargin", context=CONTEXT).inner
    assert type(other.miner).__name__ == "PairMarginMiner"


def test_memory_resumes_from_its_state_dict() -> None:
    spec, y = "crossbatchmemory:contrastive,memory_size=16", torch.arange(6)
    first, second = (losses.build(spec, context=CONTEXT) for _ in range(2))
    for seed in range(4):
        first(unit(6, seed), labels=y)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(first(unit(6, 9), labels=y), second(unit(6, 9), labels=y))
    assert first.inner.queue_idx == second.inner.queue_idx == 30 % 16


def test_a_copy_has_a_memory_of_its_own() -> None:
    loss = losses.build("crossbatchmemory:contrastive,memory_size=16", context=CONTEXT)
    loss(unit(6), labels=torch.arange(6))
    before = loss.inner.embedding_memory.clone()
    copy.deepcopy(loss)(unit(6, 1), labels=torch.arange(6))
    assert torch.equal(before, loss.inner.embedding_memory) and loss.inner.queue_idx == 6


def test_the_memory_stays_in_float32_and_off_the_graph() -> None:
    loss = losses.build("crossbatchmemory:contrastive", context=CONTEXT)
    z = unit(6).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss(z, labels=torch.arange(6)).backward()
    kept = loss.inner.embedding_memory
    assert kept.dtype == torch.float32 and not kept.requires_grad


def test_a_batch_larger_than_the_memory_is_refused() -> None:
    loss = losses.build("crossbatchmemory:contrastive,memory_size=4", context=CONTEXT)
    with pytest.raises(UserError, match="keeps memory_size=4 embeddings and got 6"):
        loss(unit(6), labels=torch.arange(6))
