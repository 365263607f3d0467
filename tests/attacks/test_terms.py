from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from dmltk import Batch, UserError, losses
from dmltk.attacks import Apgd, Attack, Probe, Terms, Threat, bim, build, mim, pgd
from pytorch_metric_learning.losses import ContrastiveLoss, NTXentLoss
from torch import nn


def test_the_goal_is_minus_the_sum_of_the_losses(net, batch, gen):
    goal = Terms(["ntxent(temperature=.1)", "contrastive"])
    loss = goal.prepare(Probe(net), batch, gen())
    z = net(batch.images)
    expected = -NTXentLoss(0.1)(z, batch.labels) - ContrastiveLoss()(z, batch.labels)
    assert loss(z).shape == () and torch.allclose(loss(z), expected, atol=1e-6)


@pytest.mark.parametrize("spec", [
    "pgd:goal=terms(losses=[ntxent,multisimilarity(alpha=1)]),select=last,steps=3",
    "bim:goal=terms(ntxent),steps=3", "mim:goal=terms,losses=ntxent,steps=3"])  # fmt: skip
def test_climbing_raises_the_losses(net, batch, gen, spec):
    attack = build(spec)
    before = attack.goal.prepare(Probe(net), batch, gen())(net(batch.images))
    found = attack(net, batch, generator=gen())
    after = attack.goal.prepare(Probe(net), batch, gen())(net(found.images))
    assert after < before and found.start_loss.shape == ()


def test_one_step_is_the_sign_of_the_gradient_of_the_loss(net, batch, gen):
    found = build("bim:goal=terms(ntxent),steps=1")(net, batch, generator=gen()).images
    images = batch.images.clone().requires_grad_()
    (grad,) = torch.autograd.grad(NTXentLoss(0.07)(net(images), batch.labels), images)
    expected = Threat().project(batch.images + 8 / 255 * grad.sign(), batch.images)
    assert (found != expected).float().mean() < 0.01  # signs of gradients that round to zero


def test_best_iterates_and_restarts_are_refused_when_built():
    for solver in (pgd(), Apgd()):
        with pytest.raises(UserError, match="terms moves the pictures .* select=last"):
            Attack(Terms("ntxent"), solver)
    with pytest.raises(UserError, match="leave restarts out"):
        build("bim:goal=terms(ntxent),restarts=2")
    with pytest.raises(UserError, match="select=last"):
        build("pgd:goal=terms(losses=[ntxent])")
    with pytest.raises(UserError, match="got none"):
        Terms([])
    assert Attack(Terms("ntxent"), mim()) and build("pgd:goal=terms(ntxent),select=last")


def test_unknown_losses_are_refused_when_built():
    with pytest.raises(UserError, match="did you mean 'ntxent'"):
        build("bim:goal=terms(losses=[ntxen])")


def test_labels_are_needed(net, batch, gen):
    """PITFALLS 13."""
    with pytest.raises(UserError, match="needs labels"):
        build("bim:goal=terms(ntxent)")(net, Batch(batch.images), generator=gen())


def test_losses_that_ask_for_sizes_are_offered_them_and_fresh_proxies_warn(net, batch, gen):
    context = {"num_classes": 4, "embedding_size": 6}
    with pytest.warns(UserWarning, match="fresh parameters"):
        attack = build("bim:goal=terms(losses=[proxyanchor]),steps=2", context=context)
    assert attack(net, batch, generator=gen()).images.shape == batch.images.shape
    with pytest.warns(UserWarning, match="fresh"):
        build("bim:goal=terms(losses=[proxyanchor],num_classes=4,embedding_size=6)")


def test_a_built_loss_stays_as_it_was(net, batch, gen):
    """Its memory, its proxies and their gradients, as all else that an attack touches."""
    memory = losses.build("crossbatchmemory:loss=contrastive,embedding_size=6,memory_size=32")
    proxies = losses.build("proxyanchor:num_classes=4,embedding_size=6")
    memory(net(batch.images).detach(), labels=batch.labels)
    before = [copy.deepcopy(loss.state_dict()) for loss in (memory, proxies)]
    attack = Attack(Terms([memory, proxies]), bim(3))
    first = attack(net, batch, generator=gen()).images
    for loss, state in zip((memory, proxies), before, strict=True):
        assert loss.state_dict().keys() == state.keys()
        assert all(torch.equal(state[key], value) for key, value in loss.state_dict().items())
        assert all(p.grad is None for p in loss.parameters())
    assert torch.equal(first, attack(net, batch, generator=gen()).images)


class Drawing(nn.Module):
    """A loss that draws from torch's global state."""

    def forward(self, z, *, labels, index):
        return (z * torch.rand(z.shape)).sum()


def test_what_a_loss_draws_comes_from_the_generator_and_stays_the_same(net, batch, gen):
    """PITFALLS 12: neither read from the global random state nor left in it."""
    before = torch.get_rng_state()
    loss = Terms(Drawing()).prepare(Probe(net), batch, gen(1))
    z = net(batch.images).detach()
    value = loss(z)
    torch.rand(3)
    assert loss(z) == value == Terms(Drawing()).prepare(Probe(net), batch, gen(1))(z)
    assert loss(z) != Terms(Drawing()).prepare(Probe(net), batch, gen(2))(z)
    torch.set_rng_state(before)
    Attack(Terms(Drawing()), bim(2))(net, batch, generator=gen())
    assert torch.equal(before, torch.get_rng_state())


def test_a_batch_without_a_pair_is_left_as_it_is(net, batch, gen):
    alone = replace(batch, labels=torch.arange(8))
    found = build("bim:goal=terms(contrastive(neg_margin=0)),steps=2")(net, alone, generator=gen())
    assert torch.equal(found.images, batch.images) and found.zero_gradients == 16
