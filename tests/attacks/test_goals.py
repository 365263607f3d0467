from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dmltk import Batch, Reference, UserError
from dmltk.attacks import Attack, Flee, Mtax, Probe, Stax, bim
from dmltk.attacks.targets import draw


def brute(z, pool, rows, power):
    """The mean over targets of a distance to a power, number by number."""
    total = torch.zeros(len(z), dtype=z.dtype)
    for i, picked in enumerate(rows):
        for row in picked:
            square = sum(
                (a - b) ** 2 for a, b in zip(z[i].tolist(), pool[row].tolist(), strict=True)
            )
            total[i] += square if power == 2 else square**0.5
    return total / rows.shape[1]


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("targets", [1, 2, 3])
@pytest.mark.parametrize("source", ["batch", "reference"])
def test_the_loss_is_the_mean_over_the_targets(net, make, gen, power, targets, source):
    net, batch = net.double(), make(8, torch.float64)
    far = make(20, torch.float64, seed=3, classes=5)
    batch = replace(batch, reference=Reference(net(far.images).detach(), far.labels))
    goal = Mtax(targets, power, source)
    loss = goal.prepare(Probe(net), batch, gen(2))
    own = source == "batch"
    rows = draw(batch.labels, batch.labels if own else far.labels, targets, gen(2))
    pool = net(batch.images) if own else batch.reference.embeddings
    z = torch.randn(8, 6, dtype=torch.float64, generator=gen(9))
    assert torch.allclose(loss(z), brute(z, pool, rows, power))


def test_squared_distances_to_targets_have_the_gradient_of_the_one_to_their_mean(net, batch, gen):
    """Sum_t |z - z_t|^2 / T = |z - mean|^2 + a constant: mtax costs what stax costs."""
    loss = Mtax(3).prepare(Probe(net), batch, gen())
    rows = draw(batch.labels, batch.labels, 3, gen())
    z = net(batch.images).detach().requires_grad_()
    (grad,) = torch.autograd.grad(loss(z).sum(), z)
    assert torch.allclose(grad, 2 * (z - z[rows].mean(1)), atol=1e-6)


def test_stax_is_mtax_with_one_target(net, batch, gen):
    z = net(batch.images)
    single, multi = (g.prepare(Probe(net), batch, gen())(z) for g in (Stax(), Mtax(1)))
    assert torch.equal(single, multi)
    assert Stax().targets == 1


def test_the_distance_to_a_target_that_is_reached_has_gradient_zero(net, batch, gen):
    """PITFALLS 7: NaN gradient of a distance at zero."""
    loss = Mtax(1, power=1).prepare(Probe(net), batch, gen())
    rows = draw(batch.labels, batch.labels, 1, gen())[:, 0]
    z = net(batch.images)[rows].detach().requires_grad_()
    (grad,) = torch.autograd.grad(loss(z).sum(), z)
    assert grad.abs().max() == 0


def test_flee_is_the_negative_squared_shift(net, batch, gen):
    loss = Flee().prepare(Probe(net), batch, gen())
    z = torch.randn(8, 6, generator=gen())
    assert torch.allclose(loss(z), -((z - net(batch.images)).norm(dim=1) ** 2))


def test_permutation_aims_at_permutations_of_the_batch_whatever_the_labels(net, batch, gen):
    bare = Batch(batch.images)
    aims = Mtax(4, pick="permutation")._embeddings(Probe(net), bare, gen())
    z = net(batch.images)
    assert aims.shape == (8, 4, 6)
    for t in range(4):
        rows = [(z == aim).all(1).nonzero().item() for aim in aims[:, t]]
        assert sorted(rows) == list(range(8))


def test_targets_are_looked_at_once_and_without_a_graph(net, batch, gen):
    probe = Probe(net)
    aims = Stax()._embeddings(probe, batch, gen())
    assert net.seen == 8 and not aims.requires_grad


def test_what_a_goal_lacks_is_said(net, batch, gen):
    """PITFALLS 13: checked before running, with the reason."""
    bare = Batch(batch.images)
    one = replace(batch, labels=torch.zeros(8, dtype=torch.long))
    for goal, given, named in [
        (Stax(), bare, "need labels"),
        (Stax(targets_from="reference"), batch, "batch with a reference"),
        (Stax(targets_from="reference"), bare, "need labels"),
        (Stax(), one, "no other class"),
        (Stax(pick="permutation"), Batch(batch.images[:1]), "single picture"),
    ]:
        with pytest.raises(UserError, match=named):
            Attack(goal, bim())(net, given, generator=gen())
    assert net.seen == 0
    with pytest.raises(UserError, match="targets_from=batch"):
        Mtax(pick="permutation", targets_from="reference")
    with pytest.raises(UserError, match="at least one"):
        Mtax(0)
