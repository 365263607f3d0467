from __future__ import annotations

import math

import pytest
import torch
from dmltk import losses
from dmltk.errors import DmltkError, UserError
from dmltk.losses import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as library
from pytorch_metric_learning import miners
from torch import Tensor
from torch.nn.functional import normalize

from .specs import NAMES, SPECS

pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
CONTEXT = {"num_classes": 6, "embedding_size": 8, "seed": 3}


def unit(rows: int, seed: int = 0, dim: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(rows, dim, generator=generator), dim=1)


def roth_multisimilarity(
    z: Tensor, labels: Tensor, a: float = 2, b: float = 40, base: float = 0.5, eps: float = 0.1
) -> Tensor:
    """The text of Roth et al. 2020, one anchor after another."""
    kept = []
    for i in range(len(z)):
        s = z @ z[i]
        positive = [float(s[j]) for j in range(len(z)) if j != i and labels[j] == labels[i]]
        negative = [float(s[j]) for j in range(len(z)) if labels[j] != labels[i]]
        if not positive or not negative:
            continue
        hard_negative = [v for v in negative if v + eps > min(positive)]
        hard_positive = [v for v in positive if v - eps < max(negative)]
        if not hard_positive or not hard_negative:
            continue
        kept.append(
            math.log(1 + sum(math.exp(-a * (v - base)) for v in hard_positive)) / a
            + math.log(1 + sum(math.exp(b * (v - base)) for v in hard_negative)) / b
        )
    return torch.tensor(sum(kept) / len(kept) if kept else 0.0)


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=14),
    seed=st.integers(0, 10_000),
    dim=st.integers(2, 6),
)
def test_multisimilarity_is_that_of_roth(labels: list[int], seed: int, dim: int) -> None:
    z, y = unit(len(labels), seed, dim), torch.tensor(labels)
    torch.testing.assert_close(
        losses.build("multisimilarity")(z, labels=y),
        roth_multisimilarity(z.double(), y),
        rtol=1e-5,
        atol=1e-6,
    )


def test_multisimilarity_counts_a_single_pair_of_each_sort() -> None:
    # the miner keeps one positive pair (0, 1) and one negative pair (0, 2), of one anchor
    angles = torch.tensor([0.0, 0.9, -0.7])
    z, y = torch.stack([angles.cos(), angles.sin()], 1), torch.tensor([0, 0, 1])
    loss = losses.build("multisimilarity")
    assert [len(part) for part in loss.miner(z, y)] == [1, 1, 1, 1]
    value = loss(z, labels=y)
    assert value > 0
    torch.testing.assert_close(value, roth_multisimilarity(z, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "inner", "miner"),
    [
        ("ntxent:temperature=.1", library.NTXentLoss(temperature=0.1), None),
        ("tripletmargin:margin=1/10", library.TripletMarginLoss(margin=0.1), None),
        (
            "tripletmargin:miner=batchhard,margin=.2",
            library.TripletMarginLoss(margin=0.2),
            miners.BatchHardMiner(),
        ),
        (
            "contrastive:miner=pairmargin(pos_margin=.1,neg_margin=.9)",
            library.ContrastiveLoss(),
            miners.PairMarginMiner(0.1, 0.9),
        ),
        (
            "multisimilarity:beta=50,miner=none,reducer=mean",
            library.MultiSimilarityLoss(),
            None,
        ),
        ("margin", library.MarginLoss(), None),
        ("supcon", library.SupConLoss(), None),
    ],
)
def test_a_spec_means_the_class_called_directly(
    spec: str, inner: torch.nn.Module, miner: torch.nn.Module | None
) -> None:
    z, y = unit(18), torch.arange(6).repeat(3)
    expected = inner(z, y, miner(z, y)) if miner else inner(z, y)
    torch.testing.assert_close(losses.build(spec, context=CONTEXT)(z, labels=y), expected)


def test_distance_reducer_and_regularizer_come_from_the_spec() -> None:
    loss = losses.build(
        "contrastive:distance=lp(p=1,power=2),reducer=threshold(low=.1),regularizer=lp(power=2)"
    )
    assert (loss.inner.distance.p, loss.inner.distance.power) == (1, 2)
    assert loss.inner.reducer.reducers["pos_loss"].low == 0.1
    assert loss.inner.embedding_regularizer.power == 2


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ntxent:miner=multisimilarty", "did you mean 'multisimilarity'"),
        ("ntxent:miner=multisimilarity(epsilom=.1)", "unknown argument 'epsilom'"),
        ("ntxent:temprature=.1", "did you mean 'temperature'"),
        ("ntxent:temperature=0", "temperature"),
        ("ntxent:distance=euclid", "unknown distance 'euclid'"),
        ("instance:miner=batchhard", "unknown argument 'miner'"),
        ("arcface", "needs num_classes"),
        ("ntxent:regularizer=lp,embedding_regularizer=lp", "are one argument"),
        ("crossbatchmemory:embedding_size=8", "needs loss"),
        ("selfsupervised:multisimilarity", "multisimilarity(miner=none)"),
    ],
)
def test_a_wrong_spec_is_refused_in_a_sentence(spec: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        losses.build(spec)
    assert said in str(error.value)


def test_arcface_trains_its_proxies_at_its_own_rate() -> None:
    loss = losses.build("arcface", context=CONTEXT)
    assert (loss.lr, loss.inner.margin, loss.inner.scale) == (5e-4, math.radians(28.65), 16)
    (proxies,) = loss.parameters()
    assert proxies.abs().max() <= 8**-0.5
    loss(unit(6), labels=torch.arange(6)).backward()
    assert proxies.grad is not None and proxies.grad.abs().sum() > 0
    assert losses.build("arcface:lr=.1", context=CONTEXT).lr == 0.1


def test_a_rate_without_parameters_is_none() -> None:
    assert losses.build("margin:lr=.1", context=CONTEXT).lr is None
    learned = losses.build("margin:lr=.1,learn_beta=true", context=CONTEXT)
    assert learned.lr == 0.1
    assert [tuple(p.shape) for p in learned.parameters()] == [(6,)]


def test_proxies_follow_the_seed_and_leave_the_global_generator() -> None:
    before = torch.get_rng_state()
    one, two, other = (
        losses.build("proxynca", context=CONTEXT | {"seed": seed}).inner.proxies
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, two) and not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_labels_beyond_the_proxies_are_refused() -> None:
    loss = losses.build("proxyanchor", context=CONTEXT)
    with pytest.raises(UserError, match="labels 0 to 5, got 6"):
        loss(unit(2), labels=torch.tensor([0, 6]))


POOR = {
    "one picture": ([0], [0]),
    "two alike in class": ([0, 1], [0, 0]),
    "two apart in class": ([0, 1], [0, 1]),
    "no positive pair": ([0, 1, 2, 3], [0, 1, 2, 3]),
    "one class": ([0, 1, 2, 3], [0, 0, 0, 0]),
    "one pair": ([0, 1, 2, 3], [0, 0, 1, 2]),
    "all alike": ([0, 0, 0, 0], [0, 0, 1, 1]),
    "all alike in one class": ([0, 0, 0, 0], [0, 0, 0, 0]),
    "classes alike within": ([0, 0, 1, 1], [0, 0, 1, 1]),
    "classes alike across": ([0, 1, 0, 1], [0, 0, 1, 1]),
}


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("name", NAMES)
def test_a_poor_batch_gives_a_finite_connected_loss(name: str) -> None:
    for said, (rows, labels) in POOR.items():
        z, y = unit(4)[rows].clone().requires_grad_(), torch.tensor(labels)
        loss = losses.build(SPECS[name].replace("K=4", "K=1"), context=CONTEXT)
        if name == "ainfonce" and len(rows) < 2:
            continue  # refused: its own tests
        value = loss(*((z, z * 1) if loss.takes == "views" else (z,)), labels=y)
        value.backward()
        assert value.isfinite() and z.grad is not None and z.grad.isfinite().all(), said
        assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters()), said
        assert loss.inactive == (1 if value == 0 else 0), said
        if loss.inactive:
            assert not z.grad.any(), said


@pytest.mark.parametrize("miner", fits.names("miner"))
def test_a_poor_batch_is_mined_without_harm(miner: str) -> None:
    for name in ("ntxent", "contrastive", "tripletmargin", "margin", "arcface", "multisimilarity"):
        for said, (rows, labels) in POOR.items():
            z, y = unit(4)[rows].clone().requires_grad_(), torch.tensor(labels)
            value = losses.build(f"{name}:miner={miner}", context=CONTEXT)(z, labels=y)
            value.backward()
            assert value.isfinite() and z.grad is not None, (name, said)
            assert z.grad.isfinite().all(), (name, said)


@pytest.mark.filterwarnings("ignore:var")
def test_a_poor_batch_of_views_without_labels_is_finite() -> None:
    z = unit(1).requires_grad_()
    loss = losses.build("vicreg")
    value = loss(z, z)
    value.backward()
    assert value == 0 and loss.inactive == 1 and z.grad is not None


def test_no_active_pair_is_counted_and_connected() -> None:
    loss = losses.build("multisimilarity")
    for count in (1, 2):
        z = unit(3).requires_grad_()
        value = loss(z, labels=torch.arange(3))
        assert value.requires_grad and value == 0 and loss.inactive == count


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_computed_in_float32_without_autocast(
    name: str, dtype: torch.dtype
) -> None:
    z, y = unit(12).to(dtype).requires_grad_(), torch.arange(6).repeat(2)
    first, second = (losses.build(SPECS[name], context=CONTEXT) for _ in range(2))
    count = 2 if first.takes == "views" else 1
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.random.fork_rng():
        torch.manual_seed(0)
        value = first(*[z, z.flip(0)][:count], labels=y)
    whole = z.detach().float()
    torch.manual_seed(0)
    expected = second(*[whole, whole.flip(0)][:count], labels=y)
    torch.testing.assert_close(value, expected, rtol=0, atol=0)
    value.backward()
    assert value.dtype == torch.float32 and z.grad is not None and z.grad.dtype == dtype
    assert all(tensor.dtype == torch.float32 for tensor in first.parameters())


def test_embeddings_of_another_length_are_refused() -> None:
    for spec in ("arcface", "crossbatchmemory:contrastive", "manifold:K=1"):
        with pytest.raises(UserError, match="made for embeddings of 8 numbers, got 4"):
            losses.build(spec, context=CONTEXT)(unit(6, dim=4), labels=torch.arange(6))


def test_views_are_compared_without_labels() -> None:
    a, b = unit(6, 1), unit(6, 2)
    expected = library.SelfSupervisedLoss(library.NTXentLoss())(a, b)
    loss = losses.build("selfsupervised:ntxent")
    torch.testing.assert_close(loss(a, b, labels=torch.zeros(6)), expected)
    torch.testing.assert_close(losses.build("vicreg")(a, b), library.VICRegLoss()(a, ref_emb=b))
    with pytest.raises(UserError, match="two views"):
        loss(a, labels=torch.arange(6))


def test_one_tensor_is_taken_where_labels_are() -> None:
    with pytest.raises(UserError, match="one embeddings tensor, got 2"):
        losses.build("ntxent")(unit(4), unit(4), labels=torch.arange(4))
    with pytest.raises(UserError, match="needs the labels"):
        losses.build("ntxent")(unit(4), labels=None)
    with pytest.raises(DmltkError, match="4 embeddings and 3 labels"):
        losses.build("ntxent")(unit(4), labels=torch.arange(3))
    with pytest.raises(UserError, match="at least K=50"):
        losses.build("manifold", context=CONTEXT)(unit(4), labels=torch.arange(4))
