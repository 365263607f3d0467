"""What is called exact is what the class does with the goal's loss in place of cross-entropy."""

from __future__ import annotations

import pytest
import torch
import torchattacks
from dmltk import registry
from dmltk.attacks import Attack, Stax, Threat, bim, mim, pgd
from dmltk.attacks.guard import seeded
from dmltk.attacks.probe import Probe
from dmltk_torchattacks.solver import Theirs
from dmltk_torchattacks.table import TABLE
from torch import nn
from torch.nn import functional

EPS, ALPHA = 8 / 255, 2 / 255
EXACT = [name for name, row in TABLE.items() if row.way in ("exact", "callable")]
STEPS = {"FGSM": {}, "FFGSM": {}, "PIFGSM": {"num_iter_set": 3}, "PIFGSMPP": {"num_iter_set": 3}}
BY_VALUE = ("PGDRS", "PGDRSL2", "SPSA")
"""Classes whose loss is no cross-entropy, with twins of their own below."""

CASES = [
    (name, dtype)
    for name in EXACT
    for dtype in (torch.float32, torch.float64)
    if name not in BY_VALUE and not (TABLE[name].float32 and dtype == torch.float64)
]


def build(name: str, **arguments):
    return registry.build("attacks", "torchattacks", name=name, **arguments)


def loss_of(net, batch, generator):
    """Stax's loss by hand, per picture, and the draw of a seed that follows it."""
    aims = Stax()._embeddings(Probe(net), batch, generator)[:, 0]
    seed = int(torch.randint(2**31, (), generator=generator))
    return lambda images: (net(images) - aims).square().sum(1), seed


class Direct(nn.Module):
    """The goal's loss itself as the only column."""

    def __init__(self, net: nn.Module, loss) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, images):
        return self.loss(images)[:, None]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_class_takes_the_steps_that_it_takes_on_the_loss_itself(
    net, make, gen, monkeypatch, name, dtype
):
    """The twin: the same class, its cross-entropy exchanged for the goal's summed loss."""
    net = net.to(dtype)
    batch = make(4, net, dtype)
    arguments = STEPS.get(name, {"steps": 5})
    found = build(name, **arguments)(net, batch, generator=gen(3))
    loss, seed = loss_of(net, batch, gen(3))
    monkeypatch.setattr(nn, "CrossEntropyLoss", lambda: lambda out, labels: -out.sum())
    monkeypatch.setattr(functional, "cross_entropy", lambda out, labels: -out.sum())
    with seeded(seed):
        twin = getattr(torchattacks, name)(Direct(net, loss), **arguments)
        expected = twin(batch.images, torch.zeros(4, dtype=torch.long))
    # PGDL2 adds 1e-10 to a length before it divides by it, whatever the gradient's scale
    slack = 1e-9 if (name, dtype) == ("PGDL2", torch.float64) else 0
    assert (found.images - expected).abs().max() <= slack
    assert (found.linf > 0).all()


@pytest.mark.parametrize("name", ["PGDRS", "PGDRSL2"])
def test_smoothed_steps_are_those_of_the_mean_gradient_under_noise(net, make, gen, name):
    net = net.double()
    batch = make(3, net, torch.float64)
    eps, alpha = (EPS, ALPHA) if name == "PGDRS" else (0.5, 0.2)
    attack = build(name, steps=3, eps=eps, alpha=alpha, noise_sd=0.1, noise_batch_size=4)
    found = attack(net, batch, generator=gen(3)).images
    loss, seed = loss_of(net, batch, gen(3))
    delta = torch.zeros_like(batch.images)
    with seeded(seed):
        for _ in range(3):
            noise = torch.randn(12, 3 * 8 * 8).view(3, 4, 3, 8, 8) * 0.1
            total = torch.zeros_like(delta)
            for copy in range(4):
                near = delta.clone().requires_grad_()
                value = loss((batch.images + near).clamp(0, 1) + noise[:, copy]).sum()
                total += torch.autograd.grad(value, near)[0]
            if name == "PGDRS":
                delta = (delta - alpha * total.sign()).clamp(-eps, eps)
            else:
                delta = delta - alpha * total / total.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
                delta = delta * (eps / delta.flatten(1).norm(dim=1)).clamp_max(1).view(-1, 1, 1, 1)
    expected = (batch.images + delta).clamp(0, 1)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)


def test_spsa_s_differences_are_those_of_the_loss(net, make, gen):
    net = net.double()
    batch = make(3, net, torch.float64)
    arguments = {"nb_sample": 6, "max_batch_size": 4, "nb_iter": 2, "delta": 0.05}
    found = build("SPSA", eps=EPS, **arguments)(net, batch, generator=gen(3)).images
    loss, seed = loss_of(net, batch, gen(3))
    change = torch.zeros_like(batch.images)
    optimizer = torch.optim.Adam([change], lr=0.01)
    with seeded(seed), torch.no_grad():
        for _ in range(2):
            grad, at = torch.zeros_like(change), batch.images + change
            for size in (4, 2):
                drawn = torch.empty(4, 1, 3, 8, 8, dtype=torch.float64)[:size]
                for sign in drawn.bernoulli_() * 2 - 1:
                    away = 0.05 * sign.expand_as(at)
                    slope = (loss(at + away) - loss(at - away)).view(-1, 1, 1, 1)
                    grad += slope / (2 * away) / 6
            change.grad = grad
            optimizer.step()
            change.copy_((batch.images + change.clamp(-EPS, EPS)).clamp(0, 1) - batch.images)
    assert torch.allclose(found, batch.images + change, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("PGD", pgd(steps=7, alpha=ALPHA, start=0, select="last")),
        ("BIM", bim(steps=7, alpha=ALPHA)),
        ("MIFGSM", mim(steps=7, alpha=ALPHA)),
        ("UPGD", mim(steps=7, alpha=ALPHA)),
    ],
)
@pytest.mark.parametrize("pictures", [1, 3, 16])
def test_the_toolkit_s_own_solvers_find_the_same_in_float64(net, make, gen, name, solver, pictures):
    net = net.double()
    batch = make(pictures, net, torch.float64)
    goal = Stax(targets_from="reference")
    extra = {"random_start": False} if name == "PGD" else {}
    theirs = Theirs(name, {"steps": 7, **extra})
    found = Attack(goal, theirs, Threat(EPS))(net, batch, generator=gen(3))
    ours = Attack(goal, solver, Threat(EPS))(net, batch, generator=gen(3))
    assert torch.allclose(found.images, ours.images, rtol=0, atol=1e-15)
    assert (found.forwards, found.backwards) == (ours.forwards, ours.backwards)
    assert torch.equal(found.start_loss, ours.start_loss)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_large_loss_is_no_vanishing_gradient(net, make, gen, scale):
    """Cross-entropy of a large column has a gradient of zero in float32; the loss has not."""

    def embed(images):
        return scale * net(images)

    batch = make(4, net)
    found = build("PGD", steps=5, random_start=False)(embed, batch, generator=gen(3))
    plain = build("PGD", steps=5, random_start=False)(net, batch, generator=gen(3))
    assert torch.equal(found.images, plain.images)
    assert found.zero_gradients == 0


class Joint:
    """One loss for the whole batch."""

    joint = True

    def prepare(self, probe, batch, generator):
        return lambda z: (z[0] - z[1:]).square().sum()


def test_a_loss_of_the_whole_batch_is_climbed_down_too(net, make, gen):
    net = net.double()
    batch = make(4, net, torch.float64)
    found = Attack(Joint(), Theirs("BIM", {"steps": 5}), Threat(EPS))(net, batch, generator=gen())
    ours = Attack(Joint(), bim(steps=5, alpha=ALPHA), Threat(EPS))(net, batch, generator=gen())
    assert torch.allclose(found.images, ours.images, rtol=0, atol=1e-15)
