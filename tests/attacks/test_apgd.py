from __future__ import annotations

import math

import pytest
import torch
import torchattacks
from dmltk import Batch, UserError
from dmltk.attacks import Apgd, Attack, Flee, Probe, Stax, Threat, pgd
from dmltk.attacks.apgd import checkpoints
from hypothesis import given, settings
from hypothesis import strategies as st


def test_checkpoints_are_those_of_the_paper():
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(10) == [3, 5, 6, 7, 8, 9, 10, 10]


def slow(gradient, project, steepest, x0, eps, steps):
    """Algorithm 1 for one picture, with its sums over windows written out."""
    f, g = gradient(x0)
    x, before, eta, best, fell = x0, x0, 2 * eps, (f, x0, g), []
    shares = [0, 0.22]
    while shares[-1] < 1:
        shares.append(round(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06), 10))
    stops = sorted({math.ceil(round(p * steps, 6)) for p in shares[:-1]})
    etas, bests = {0: eta}, {0: f}
    for k in range(1, steps + 1):
        z = project(x - eta * steepest(g))
        step = z if k == 1 else project(x + 0.75 * (z - x) + 0.25 * (x - before))
        before, x, last = x, step, f
        f, g = gradient(x)
        fell.append(f < last)
        best = min(best, (f, x, g), key=lambda found: found[0])
        if k in stops:
            w = stops[stops.index(k) - 1]
            slack = sum(fell[w:k]) < 0.75 * (k - w)
            stuck = etas[w] == eta and bests[w] == best[0]
            bests[k] = best[0]
            if slack or stuck:
                eta, (f, x, g) = eta / 2, best
            etas[k] = eta
    return best


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.sampled_from(["linf", "l2"]), st.sampled_from([0.02, 0.1]),
       st.integers(0, 99))  # fmt: skip
def test_apgd_is_the_published_algorithm_picture_by_picture(steps, norm, eps, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(4, 3, 3, 3, dtype=torch.float64, generator=generator)
    weight = torch.randn(27, 4, dtype=torch.float64, generator=generator)
    aims = torch.randn(4, 4, dtype=torch.float64, generator=generator).sin()
    threat = Threat(eps, norm)

    class Goal:
        def prepare(self, probe, batch, generator):
            return lambda z: (z - aims).square().sum(1)

    found = Attack(Goal(), Apgd(steps), threat)(
        lambda x: (x.flatten(1) @ weight).sin(), Batch(images),
        generator=torch.Generator().manual_seed(7),
    )  # fmt: skip
    starts = threat.random(images, eps, torch.Generator().manual_seed(7))
    for i in range(4):

        def gradient(x, i=i):
            leaf = x[None].clone().requires_grad_()
            loss = ((leaf.flatten(1) @ weight).sin() - aims[i]).square().sum()
            return loss.item(), torch.autograd.grad(loss, leaf)[0][0]

        def project(x, i=i):
            return threat.project(x[None], images[i : i + 1])[0]

        def steepest(g):
            return g.sign() if norm == "linf" else g / g.norm()

        loss, adv, _ = slow(gradient, project, steepest, starts[i], eps, steps)
        assert found.loss[i].item() == pytest.approx(loss, rel=1e-6)
        assert torch.allclose(found.images[i], adv, atol=1e-8)


def test_steps_are_halved_on_the_way(gen):
    """A valley narrower than the first step: without halving the loss would stay where it is."""
    images = torch.full((2, 1, 4, 4), 0.5, dtype=torch.float64)
    aim = images + 0.01 * torch.rand(images.shape, dtype=torch.float64, generator=gen())

    class Goal:
        def prepare(self, probe, batch, generator):
            return lambda z: (z - aim.flatten(1)).square().sum(1)

    few, many = (
        Attack(Goal(), Apgd(steps), Threat(0.3))(
            lambda x: x.flatten(1), Batch(images), generator=gen()
        ).loss
        for steps in (3, 100)
    )
    assert (many < 1e-3 * few).all()


def test_it_costs_one_gradient_a_step_and_one_loss(net, batch, gen):
    found = Attack(Stax(), Apgd(6, start=0))(net, batch, generator=gen())
    assert net.seen == found.forwards == 7 * 8 and found.backwards == 6 * 8


def test_the_loss_returned_is_that_of_the_pictures_returned(net, batch, gen):
    """PITFALLS 15, 21: success disagrees with re-evaluation; a loss reported one step early."""
    for solver in (Apgd(15), pgd(5)):
        found = Attack(Flee(), solver)(net, batch, generator=gen())
        shift = (net(found.images) - net(batch.images)).square().sum(1)
        assert torch.allclose(found.loss, -shift, atol=1e-6)
        assert (found.loss <= found.start_loss).all()


def test_it_is_about_as_strong_as_torchattacks(net, make, gen):
    """Theirs starts elsewhere and looks at other windows, so only the level is the same."""
    batch = make(16)
    aims = Stax()._embeddings(Probe(net), batch, gen(3))[:, 0]

    class Columns(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, images):
            loss = (self.net(images) - aims).square().sum(1)
            return torch.stack([loss, torch.zeros_like(loss)], 1)

    theirs = torchattacks.APGD(Columns().eval(), eps=8 / 255, steps=40)
    with torch.random.fork_rng():
        adv = theirs.perturb(batch.images, torch.zeros(16, dtype=torch.long), best_loss=True)[1]
    level = (net(adv) - aims).square().sum(1)
    found = Attack(Stax(), Apgd(40))(net, batch, generator=gen(3))
    assert found.loss.mean().item() == pytest.approx(level.mean().item(), rel=0.01)


def test_flee_may_start_at_random_only():
    assert Attack(Flee(), Apgd())
    with pytest.raises(UserError, match="random start"):
        Attack(Flee(), Apgd(start=0))


def test_a_loss_of_the_whole_batch_is_refused(net, batch, gen):
    class Scalar:
        def prepare(self, probe, batch, generator):
            return lambda z: z.square().sum()

    with pytest.raises(UserError, match="loss per picture"):
        Attack(Scalar(), Apgd(2))(net, batch, generator=gen())
    with pytest.raises(UserError, match="below 0"):
        Apgd(-1)
