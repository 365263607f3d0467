"""The embedder as a classifier by class centres: margin and cross-entropy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dmltk import Batch, Reference, UserError
from dmltk.attacks import Attack, Probe, Prototype, Threat, build, pgd
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize


def loss_of(goal: Prototype, batch: Batch, z: torch.Tensor) -> torch.Tensor:
    return goal.prepare(Probe(lambda x: x), batch, torch.Generator())(z)


def slow_logits(batch: Batch, z, temperature, unit, leave_out):
    """Picture by picture and class by class; the own class's place beside them."""
    whole, found, place = batch.reference, [], []
    classes = sorted(set(whole.labels.tolist()))
    for i, label in enumerate(batch.labels.tolist()):
        row = []
        for c in classes:
            members = [r for r in range(len(whole.labels)) if whole.labels[r] == c]
            if leave_out and c == label and len(members) > 1:
                members = [r for r in members if r != batch.index[i]]
            centre = sum(whole.embeddings[r] for r in members) / len(members)
            centre = centre / centre.norm() if unit else centre
            row.append(-sum((a - b) ** 2 for a, b in zip(z[i], centre, strict=True)) / temperature)
        found.append(torch.stack(row))
        place.append(classes.index(label))
    return torch.stack(found), torch.tensor(place)


def drawn(seed: int, n: int, labels: list[int], dtype=torch.float64) -> tuple[Batch, torch.Tensor]:
    """A batch of the first rows of a reference with these labels, and embeddings of it."""
    generator = torch.Generator().manual_seed(seed)
    pool = normalize(torch.randn(len(labels), 4, dtype=dtype, generator=generator), dim=1)
    rows = torch.tensor(labels)
    batch = Batch(torch.zeros(n, 1, 1, 1, dtype=dtype), rows[:n], torch.arange(n),
                  Reference(pool, rows))  # fmt: skip
    return batch, torch.randn(n, 4, dtype=dtype, generator=generator)


@settings(max_examples=40)
@given(
    st.integers(0, 1000),
    st.integers(1, 4),
    st.lists(st.sampled_from([-3, 0, 5, 7]), min_size=4, max_size=9).filter(
        lambda labels: len(set(labels)) > 1
    ),
    st.sampled_from([0.1, 1.0, 3.0]),
    st.booleans(),
    st.booleans(),
)
def test_margin_and_ce_are_those_of_the_logits_written_out(seed, n, labels, heat, unit, leave_out):
    batch, z = drawn(seed, n, labels)
    logits, place = slow_logits(batch, z, heat, unit, leave_out)
    own = logits[torch.arange(n), place]
    others = logits.clone()
    others[torch.arange(n), place] = -float("inf")
    margin = loss_of(Prototype("margin", heat, unit, leave_out), batch, z)
    assert torch.allclose(margin, own - others.max(1).values, rtol=1e-9, atol=1e-9)
    ce = loss_of(Prototype("ce", heat, unit, leave_out), batch, z)
    assert torch.allclose(ce, -cross_entropy(logits, place, reduction="none"), atol=1e-9)


def test_below_a_margin_of_zero_the_nearest_centre_is_another_class_s():
    batch, z = drawn(1, 40, [i % 5 for i in range(60)])
    centres = torch.stack([batch.reference.embeddings[c::5].mean(0) for c in range(5)])
    nearest = torch.cdist(z, centres).argmin(1)
    lost = loss_of(Prototype(leave_out=False), batch, z) < 0
    assert torch.equal(lost, nearest != batch.labels) and 0 < lost.sum() < 40


def test_the_margin_s_gradient_points_from_the_own_centre_to_the_other():
    batch, z = drawn(2, 3, [0, 1, 0, 1, 1, 0])
    z.requires_grad_()
    loss = loss_of(Prototype(temperature=0.5, leave_out=False), batch, z)
    (grad,) = torch.autograd.grad(loss.sum(), z)
    centres = [batch.reference.embeddings[batch.reference.labels == c].mean(0) for c in (0, 1)]
    for row, label in zip(grad, batch.labels.tolist(), strict=True):
        assert torch.allclose(row, 2 * (centres[label] - centres[1 - label]) / 0.5)


def test_the_own_row_is_left_out_by_index_and_not_by_distance():
    """PITFALLS 21: a duplicate is another item; -1, or a row of another class, is no row."""
    batch, z = drawn(3, 1, [0, 1, 0, 1, 0, 1])
    batch.reference.embeddings[2] = batch.reference.embeddings[0]
    own = [loss_of(Prototype(), replace(batch, index=torch.tensor([row])), z).item()
           for row in (0, 2, 4)]  # fmt: skip
    assert own[0] == pytest.approx(own[1]) and own[0] != pytest.approx(own[2])
    whole = loss_of(Prototype(leave_out=False), batch, z)
    for row in (-1, 1, 99):
        outside = replace(batch, index=torch.tensor([row]))
        assert torch.allclose(loss_of(Prototype(), outside, z), whole)


def test_a_picture_alone_in_its_class_keeps_its_own_row():
    batch, z = drawn(4, 1, [9, 1, 2, 1])
    assert torch.equal(
        loss_of(Prototype(), batch, z), loss_of(Prototype(leave_out=False), batch, z)
    )


def test_float32_agrees_with_float64():
    labels = [i % 7 for i in range(50)]
    batch, z = drawn(5, 20, labels)
    single = replace(batch, images=batch.images.float())
    for loss in ("margin", "ce"):
        found = loss_of(Prototype(loss, 0.05), single, z.float())
        assert found.dtype == torch.float32
        assert torch.allclose(found.double(), loss_of(Prototype(loss, 0.05), batch, z), atol=1e-3)


def test_what_prototype_lacks_is_said(net, make, gen):
    """PITFALLS 13: checked before running, with the reason."""
    batch = make(4)
    pool = torch.randn(8, 6, generator=gen())
    whole = replace(batch, index=torch.arange(4), reference=Reference(pool, torch.arange(8) % 4))
    for given_, named in [
        (replace(whole, labels=None), "needs labels"),
        (replace(whole, reference=None), "from a reference"),
        (replace(whole, index=None), "by index"),
        (replace(whole, reference=Reference(pool, torch.zeros(8).long())), "has one"),
        (replace(whole, reference=Reference(pool, torch.arange(8) % 3)), "no picture of class 3"),
    ]:
        with pytest.raises(UserError, match=named) as said:
            Attack(Prototype(), pgd())(net, given_, generator=gen())
        assert "\n" not in str(said.value)
    assert net.seen == 0
    plain = replace(whole, index=None)
    Attack(Prototype(leave_out=False), pgd(1))(net, plain, generator=gen())
    with pytest.raises(UserError, match="above 0"):
        Prototype(temperature=0)


@pytest.mark.parametrize("loss", ["margin", "ce"])
@pytest.mark.parametrize("n", [1, 12])
def test_an_attack_on_the_centres_loses_classes(net, make, gen, loss, n):
    whole = make(24, classes=3)
    reference = Reference(net(whole.images).detach(), whole.labels)
    batch = Batch(whole.images[:n], whole.labels[:n], torch.arange(n), reference)
    attack = build(f"prototype:{loss},eps=0.1,steps=5,temperature=.1")
    assert attack == Attack(Prototype(loss, 0.1), pgd(5), Threat(0.1))
    found = attack(net, batch, generator=gen())
    goal = Prototype().prepare(Probe(net), batch, gen())
    clean, lost = goal(net(batch.images)), goal(net(found.images))
    assert (found.loss < found.start_loss).all() and (lost < clean).all()
    assert (lost < 0).sum() > (clean < 0).sum() or n == 1


def test_centres_are_not_rounded_under_autocast():
    batch, _ = drawn(6, 3, [0, 1, 2, 0, 1, 2], torch.float32)
    plain = Prototype().prepare(Probe(lambda x: x), batch, torch.Generator())
    with torch.autocast("cpu", torch.bfloat16):
        cast = Prototype().prepare(Probe(lambda x: x), batch, torch.Generator())
    assert torch.equal(plain.own, cast.own) and torch.equal(plain.centres, cast.centres)
