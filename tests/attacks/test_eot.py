"""Expectation over transformation: means over the draws of a randomised model."""

from __future__ import annotations

import pytest
import torch
from dmltk import Batch, UserError, registry
from dmltk.attacks import Attack, Nes, Noise, Probe, Square, Stax, Terms, Threat, bim, build, pgd
from torch import nn

SIGMA = 0.3


class Noisy(nn.Module):
    """The pixels with additive Gaussian noise from the global state, in eval mode too."""

    def __init__(self):
        super().__init__()
        self.seen, self.draws = 0, []

    def forward(self, images):
        self.seen += len(images)
        noise = torch.randn_like(images).flatten(1)
        self.draws.append(noise)
        return images.flatten(1) + SIGMA * noise


class Origin:
    """loss = |z|^2: with z = x + s n its gradient is 2 (x + s n), of variance 4 s^2."""

    def prepare(self, probe, batch, generator):
        return lambda z: z.square().sum(1)


@pytest.fixture
def pictures():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(400, 3, 2, 2, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("n", [1, 4, 16])
def test_the_variance_of_a_mean_gradient_falls_as_one_over_n(pictures, n):
    probe = Probe(Noisy(), passes=n)
    probe.objective = lambda z: z.square().sum(1)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        loss, grad = probe.gradient(pictures)
    error = (grad - 2 * pictures).flatten()
    assert error.square().mean().item() == pytest.approx(4 * SIGMA**2 / n, rel=0.1)
    assert abs(error.mean().item()) < 4 * 2 * SIGMA / (n * error.numel()) ** 0.5
    assert probe.forwards == probe.backwards == 400 * n
    # |x + s n|^2 has mean |x|^2 + 12 s^2 and variance 4 s^2 |x|^2 + 24 s^4
    square = pictures.flatten(1).square().sum(1)
    off = (loss - square - 12 * SIGMA**2) / (4 * SIGMA**2 * square + 24 * SIGMA**4).sqrt()
    assert off.square().mean().item() == pytest.approx(1 / n, rel=0.3)


def test_a_loss_for_selection_is_a_mean_over_new_passes_too(pictures):
    model = Noisy()
    probe = Probe(model, passes=5)
    probe.objective = lambda z: z.square().sum(1)
    with torch.random.fork_rng():
        probe.embed(pictures)
        loss = probe.loss(pictures)
    assert model.seen == probe.forwards == 400 * 6
    each = [(pictures.flatten(1) + SIGMA * noise).square().sum(1) for noise in model.draws[1:]]
    assert torch.allclose(loss, torch.stack(each).mean(0))
    assert torch.equal(probe.recall(pictures), loss) and probe.loss(pictures) is loss


def test_one_pass_is_bit_equal_to_the_loop_on_the_callers_global_state(pictures):
    images = pictures.float()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    found = Attack(Origin(), bim(steps=3), Threat(0.1))(
        Noisy(), Batch(images), generator=torch.Generator()
    )
    assert torch.equal(torch.get_rng_state(), before)
    model, adv = Noisy(), images
    for _ in range(3):
        leaf = adv.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model(leaf).square().sum(), leaf)
        adv = Threat(0.1).project(adv - 0.1 / 3 * grad.sign(), images)
    assert torch.equal(found.images, adv)


@pytest.mark.parametrize("spec", ["stax", "mtax:targets=2", "pgd:steps=2", "apgd:steps=3",
                                  "mim:steps=2", "nes:queries=6,population=4"])  # fmt: skip
def test_one_pass_changes_nothing(net, batch, gen, spec):
    plain, one = (build(text)(net, batch, generator=gen())
                  for text in (spec, f"{spec}{',' if ':' in spec else ':'}eot=1"))  # fmt: skip
    assert torch.equal(plain.images, one.images) and plain.forwards == one.forwards


@pytest.mark.parametrize("n", [2, 5])
def test_an_attack_is_the_loop_written_out(pictures, n):
    """The best of all iterates by the mean loss, with the model's draws from the generator."""
    found = Attack(Origin(), pgd(steps=4, start=0), Threat(0.1), eot=n)(
        Noisy(), Batch(pictures), generator=torch.Generator().manual_seed(3)
    )
    generator = torch.Generator().manual_seed(3)
    model, adv, seen = Noisy(), pictures, []
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        for step in range(5):
            losses, grads = [], []
            for _ in range(n):
                leaf = adv.clone().requires_grad_()
                loss = model(leaf).square().sum(1)
                grads.append(torch.autograd.grad(loss.sum(), leaf)[0])
                losses.append(loss.detach())
            seen.append((torch.stack(losses).mean(0), adv))
            if step < 4:
                mean = torch.stack(grads).mean(0)
                adv = Threat(0.1).project(adv - 2.5 * 0.1 / 4 * mean.sign(), pictures)
    losses = torch.stack([loss for loss, _ in seen])
    assert torch.allclose(found.loss, losses.amin(0))
    best = torch.stack([x for _, x in seen])[losses.argmin(0), torch.arange(len(pictures))]
    assert torch.allclose(found.images, best, atol=1e-9)
    assert (found.forwards, found.backwards) == (400 * 5 * n, 400 * 4 * n)


@pytest.mark.parametrize("goal", [Origin(), Stax()])
def test_draws_follow_from_the_generator_and_never_repeat(pictures, goal):
    batch = Batch(pictures[:8], torch.arange(8) % 3)
    images = []
    for seed, state in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(state)
        before, model = torch.get_rng_state(), Noisy()
        attack = Attack(goal, pgd(steps=3), Threat(0.1), eot=4)
        images.append(attack(model, batch, generator=torch.Generator().manual_seed(seed)).images)
        assert torch.equal(torch.get_rng_state(), before)
        assert len({tuple(draw.flatten().tolist()) for draw in model.draws}) == len(model.draws)
    assert torch.equal(images[0], images[1]) and not torch.equal(images[0], images[2])


def test_losses_that_draw_do_not_stop_the_models_draws(pictures):
    """Climbed losses draw alike at every step from a state of their own."""

    class Drawing(nn.Module):
        def forward(self, z, *, labels, index=None):
            return (z * torch.randn(z.shape[1], dtype=z.dtype)).sum()

    model = Noisy()
    batch = Batch(pictures[:4], torch.arange(4))
    Attack(Terms(Drawing()), bim(steps=2), eot=3)(model, batch, generator=torch.Generator())
    assert len({tuple(draw.flatten().tolist()) for draw in model.draws}) == 6


@pytest.mark.parametrize("solver", [pgd(steps=3, start=0), bim(steps=3), Square(9),
                                    Nes(11, population=4, start=0)])  # fmt: skip
def test_a_model_that_draws_nothing_is_attacked_as_with_one_pass(net, make, gen, solver):
    batch = make(4, torch.float64)

    class Aim:
        def prepare(self, probe, batch, generator):
            return lambda z: z[:, 0]

    later = gen()  # with several passes the first draw is the seed of the model's
    torch.randint(2**31, (), generator=later)
    once = Attack(Aim(), solver)(net.double(), batch, generator=later)
    often = Attack(Aim(), solver, eot=3)(net.double(), batch, generator=gen())
    assert torch.allclose(once.images, often.images, atol=1e-12)
    assert often.forwards == 3 * once.forwards and often.backwards == 3 * once.backwards


def test_a_dropout_left_on_is_averaged_out(pictures):
    """Two attacks of many passes agree on more signs than two of a single pass do."""

    class Drop(nn.Module):
        def forward(self, images):
            return nn.functional.dropout(images.flatten(1) - 0.5, 0.5, training=True)

    def agreement(n):
        first, second = (
            Attack(Origin(), bim(steps=1), Threat(0.1), eot=n)(
                Drop(), Batch(pictures), generator=torch.Generator().manual_seed(seed)
            ).images
            for seed in (1, 2)
        )
        return (first == second).double().mean().item()

    assert agreement(2) < 0.8 and agreement(12) > 0.99


def test_passes_are_counted_for_solvers_without_gradients(pictures):
    for solver, losses in ((Square(7), 7), (Nes(12, population=4), 11), (Noise(3), 3)):
        model = Noisy()
        found = Attack(Origin(), solver, eot=4)(
            model, Batch(pictures[:5]), generator=torch.Generator()
        )
        assert model.seen == found.forwards == 5 * 4 * losses


def test_it_is_an_argument_of_every_named_attack():
    for name in ("stax", "pgd", "flee", "nes", "noise"):
        assert build(f"{name}:eot=4").eot == 4
        assert "eot" in registry.signature(registry.factory("attacks", name)).parameters
    with pytest.raises(UserError, match="eot"):
        build("pgd:eot=0")
    with pytest.raises(UserError, match="eot=0"):
        Attack(Stax(), bim(), eot=0)
