"""Equal to torchattacks, through an adapter that turns a goal into two columns of logits."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
import torch
import torchattacks
from dmltk.attacks import Attack, Descent, Stax, Threat, bim, guard, mim, pgd
from dmltk.attacks.probe import Probe
from torch import Tensor, nn

EPS = 8 / 255


class TwoColumns(nn.Module):
    """Logits [s, 0] with s the goal's loss: cross-entropy against label 0 falls as s rises."""

    def __init__(self, net: nn.Module, aims: Tensor) -> None:
        super().__init__()
        self.net, self.aims = net, aims

    def forward(self, images: Tensor) -> Tensor:
        loss = (self.net(images) - self.aims).square().sum(1)
        return torch.stack([loss, torch.zeros_like(loss)], 1)


def both(net, batch, gen, solver: Descent, theirs) -> tuple[Tensor, Tensor]:
    net = net.to(batch.images.dtype)
    found = Attack(Stax(), solver, Threat(EPS))(net, batch, generator=gen(3)).images
    aims = Stax()._embeddings(Probe(net), batch, gen(3))[:, 0]
    adapter = TwoColumns(net, aims).eval()
    attack = theirs(adapter)
    labels = torch.zeros(len(batch.images), dtype=torch.long)
    return found, attack(batch.images, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pgd_is_bit_equal(net, make, gen, dtype):
    solver = pgd(steps=7, alpha=2 / 255, start=0, select="last")
    ours, theirs = both(
        net,
        make(16, dtype),
        gen,
        solver,
        lambda model: torchattacks.PGD(model, EPS, 2 / 255, 7, random_start=False),
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mim_is_bit_equal(net, make, gen, dtype):
    ours, theirs = both(
        net,
        make(16, dtype),
        gen,
        mim(steps=7, alpha=2 / 255),
        lambda model: torchattacks.MIFGSM(model, EPS, 2 / 255, 7, 1.0),
    )
    assert torch.equal(ours, theirs)


def test_bim_is_equal_in_float64(net, make, gen):
    ours, theirs = both(
        net,
        make(16, torch.float64),
        gen,
        bim(steps=7, alpha=2 / 255),
        lambda model: torchattacks.BIM(model, EPS, 2 / 255, 7),
    )
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-15)


def test_bim_differs_in_a_few_pixels_by_one_rounding_in_float32(net, make, gen):
    ours, theirs = both(
        net,
        make(16),
        gen,
        bim(steps=7, alpha=2 / 255),
        lambda model: torchattacks.BIM(model, EPS, 2 / 255, 7),
    )
    assert (ours - theirs).abs().max() <= torch.finfo(torch.float32).eps
    assert (ours != theirs).float().mean() < 0.1


@pytest.mark.parametrize("name", ["CW", "PIFGSM", "DeepFool", "FAB", "Square"])
def test_the_guard_undoes_what_their_attacks_leave_behind(net, batch, name):
    """PITFALLS 1, 10, 12: thawed normalisers, weight gradients, a reseeded global generator."""
    net.train()
    net.bn.eval()
    adapter = TwoColumns(net, torch.zeros(6))
    before = {key: value.clone() for key, value in adapter.state_dict().items()}
    random = torch.get_rng_state()
    modes = [module.training for module in adapter.modules()]
    with guard(adapter):
        arguments = {
            "CW": {"steps": 2},
            "Square": {"n_queries": 2, "seed": 1},
            "FAB": {"n_classes": 2},
        }
        attack = getattr(torchattacks, name)(adapter, **arguments.get(name, {}))
        attack(batch.images, torch.zeros(8, dtype=torch.long))
    assert [module.training for module in adapter.modules()] == modes
    assert all(parameter.grad is None for parameter in adapter.parameters())
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(before[key], value) for key, value in adapter.state_dict().items())


def test_the_core_pins_lower_bounds_only_and_no_library_of_attacks():
    """PITFALLS 17: one pin of a dependency makes the environment unsolvable."""
    core = [line for line in metadata.requires("dmltk") or [] if "extra ==" not in line]
    assert core and not any("attack" in line.lower() for line in core)
    assert all(re.fullmatch(r"[\w.-]+(>=[\d.]+)?", line.replace(" ", "")) for line in core), core
