from __future__ import annotations

import pytest
import torch
from dmltk import UserError
from dmltk.attacks import Attack, Descent, Flee, Probe, Stax, Threat, bim, fgsm, mim, pgd
from hypothesis import given, settings
from hypothesis import strategies as st


def clamp(adv, images, eps):
    """The projection written as two bounds."""
    low, high = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
    return torch.maximum(torch.minimum(adv, high), low)


def slow(embed, batch, aims, eps, steps, alpha, decay, start):
    """Picture by picture, the published loop; every iterate and its loss."""
    iterates = []
    for x, aim, x0 in zip(batch.images, aims, start, strict=True):
        adv, momentum, seen = x0[None], 0, []
        for _ in range(steps):
            leaf = adv.clone().requires_grad_()
            loss = (embed(leaf) - aim).pow(2).sum()
            loss.backward()
            grad = leaf.grad
            seen.append((loss.item(), adv))
            if decay:
                momentum = decay * momentum + grad / grad.abs().mean()
                grad = momentum
            adv = clamp(adv - alpha * grad.sign(), x[None], eps)
        seen.append(((embed(adv) - aim).pow(2).sum().item(), adv))
        iterates.append(seen)
    return iterates


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 6),
    st.sampled_from([4 / 255, 0.1]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(["best", "last"]),
    st.sampled_from([0.0, None, 0.01, 0.5]),
)
def test_descent_equals_the_loop_written_out(steps, eps, decay, select, start):
    from dmltk import Batch

    generator = torch.Generator().manual_seed(steps)
    images = torch.rand(3, 3, 4, 4, dtype=torch.float64, generator=generator)
    weight = torch.randn(48, 5, dtype=torch.float64, generator=generator)

    def embed(x):
        return (x.flatten(1) @ weight).sin()

    class Goal:
        def prepare(self, probe, batch, generator):
            return lambda z: (z - aims).square().sum(1)

    batch, aims = Batch(images), embed(images[[1, 2, 0]])
    solver = Descent(steps, gain=2.5, start=start, decay=decay, select=select)
    draws = torch.Generator().manual_seed(7)
    first = Threat(eps).random(images, min(1.0 if start is None else start, eps), draws)
    found = Attack(Goal(), solver, Threat(eps))(
        embed, batch, generator=torch.Generator().manual_seed(7)
    )
    with torch.enable_grad():
        expected = slow(
            embed,
            batch,
            aims,
            eps,
            steps,
            2.5 * eps / steps,
            decay,
            first if start != 0 else images,
        )
    for i, seen in enumerate(expected):
        loss, adv = min(seen, key=lambda pair: pair[0]) if select == "best" else seen[-1]
        assert torch.allclose(found.images[i], adv[0], atol=1e-12)
        if select == "best":
            assert found.loss[i].item() == pytest.approx(loss)


def test_presets_are_those_of_the_published_methods():
    assert fgsm() == Descent(1, None, 1.0, 0.0, 0.0, "last")
    assert bim() == Descent(10, None, 1.0, 0.0, 0.0, "last")
    assert pgd() == Descent(10, None, 2.5, None, 0.0, "best")
    assert mim() == Descent(10, None, 1.0, 0.0, 1.0, "last")


@pytest.mark.parametrize(
    ("solver", "lengths"),
    [
        (fgsm(), [0.08]),
        (bim(steps=4), [0.02, 0.04, 0.06, 0.08]),
        (bim(steps=2, alpha=0.01), [0.01, 0.02]),
        (pgd(steps=5, start=0, select="last"), [0.04, 0.08, 0.08, 0.08, 0.08]),
        (mim(steps=4), [0.02, 0.04, 0.06, 0.08]),
    ],
)
def test_the_length_of_a_step_follows_eps_and_steps(gen, solver, lengths):
    images = torch.full((2, 1, 2, 2), 0.5, dtype=torch.float64)
    probe = Probe(lambda x: x.flatten(1))
    probe.objective = lambda z: z.sum(1)
    seen = []
    gradient = probe.gradient
    probe.gradient = lambda x: seen.append(x) or gradient(x)
    seen.append(solver(probe, images, Threat(0.08), gen()))
    assert [(x - images).abs().max().item() for x in seen[1:]] == pytest.approx(lengths)


def test_the_best_iterate_is_never_worse_than_the_start_or_the_last(net, batch, gen):
    for seed in range(5):
        best = Attack(Stax(), pgd(steps=4, gain=20))(net, batch, generator=gen(seed))
        last = Attack(Stax(), pgd(steps=4, gain=20, select="last"), restarts=1)
        probe = last(net, batch, generator=gen(seed)).images
        goal = Stax().prepare(Probe(net), batch, gen(seed))
        assert (best.loss <= best.start_loss).all()
        assert (best.loss <= goal(net(probe)) + 1e-6).all()
        assert torch.allclose(best.loss, goal(net(best.images)), atol=1e-6)


def test_more_steps_are_not_weaker(net, batch, gen):
    losses = [
        Attack(Stax(), pgd(steps=k, start=0))(net, batch, generator=gen()).loss.mean().item()
        for k in (1, 3, 10, 40)
    ]
    assert losses == sorted(losses, reverse=True)


def test_a_picture_without_gradient_stays_and_is_counted(batch, gen):
    """PITFALLS 7: no division by a gradient of zero."""

    def embed(x):
        return x.flatten(1) * (torch.arange(8) > 2)[:, None]

    for solver in (mim(steps=3), bim(steps=3)):
        found = Attack(Stax(targets_from="batch"), solver)(embed, batch, generator=gen())
        assert torch.equal(found.images[:3], batch.images[:3])
        assert found.zero_gradients == 9


def test_flee_moves_the_embedding_further_than_noise_does(net, batch, gen):
    noise = Threat().random(batch.images, 8 / 255, gen())
    found = Attack(Flee(), pgd())(net, batch, generator=gen()).images
    clean = net(batch.images)
    assert ((net(found) - clean).norm(dim=1) > 2 * (net(noise) - clean).norm(dim=1)).all()


def test_a_negative_number_of_steps_is_refused():
    with pytest.raises(UserError, match="below 0"):
        bim(steps=-1)
