"""What the parts leave open: one change for many pictures, a patch, pictures that move together."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from dmltk import UserError
from dmltk.attacks import Attack, Flee, Probe, Stax, Threat, bim, mim, pgd
from torch import Tensor


@dataclass(frozen=True)
class Universal:
    """One change for all pictures of a batch: steps down the sum of their gradients."""

    steps: int = 5

    def __call__(self, probe, images, threat, generator):
        change = torch.zeros_like(images[:1])
        for _ in range(self.steps):
            _, grad = probe.gradient(threat.project(images + change, images))
            ahead = change - threat.largest / self.steps * threat.steepest(grad.sum(0, True))
            change = threat.limit(ahead)
        return threat.project(images + change, images)


@pytest.mark.parametrize("threat", [Threat(0.05), Threat(0.5, "l2"), Threat((0.05, 0.01, 0.1))])
def test_one_change_can_be_shared_by_all_pictures(net, batch, gen, threat):
    found = Attack(Stax(), Universal(), threat)(net, batch, generator=gen())
    change = found.images - batch.images
    inside = (found.images > 0) & (found.images < 1)  # elsewhere the box has cut it
    for pixel in range(3 * 8 * 8):
        shared = change.flatten(1)[:, pixel][inside.flatten(1)[:, pixel]]
        assert len(shared) == 0 or (shared - shared[0]).abs().max() < 1e-6
    loss = Stax().prepare(Probe(net), batch, gen())
    assert loss(net(found.images)).mean() < loss(net(batch.images)).mean()


@dataclass(frozen=True, eq=False)
class Patch:
    """Changes only where a mask is one."""

    mask: Tensor
    steps: int = 5

    def __call__(self, probe, images, threat, generator):
        noise = threat.random(images, threat.largest, generator) - images
        adv = threat.project(images + self.mask * noise, images)
        for _ in range(self.steps):
            _, grad = probe.gradient(adv)
            step = 2 * threat.largest / self.steps * threat.steepest(grad * self.mask)
            adv = threat.project(adv - step, images)
        return adv


@pytest.mark.parametrize("threat", [Threat(norm="none"), Threat(0.1), Threat(0.5, "l2", 8)])
def test_a_mask_confines_an_attack_to_a_patch(net, batch, gen, threat):
    mask = torch.zeros(1, 1, 8, 8)
    mask[..., 2:5, 3:6] = 1
    if threat.quantize:
        batch.images.mul_(255).round_().div_(255)
    found = Attack(Flee(), Patch(mask), threat)(net, batch, generator=gen())
    changed = (found.images != batch.images).any(1, keepdim=True).any(0, keepdim=True)
    assert torch.equal(changed, mask.bool())
    assert (
        found.linf.max() > 0.9
        if threat.norm == "none"
        else threat.allows(found.images, batch.images)
    )


class Gather:
    """Every picture nears the mean of the attacked batch: each moves for all the others too."""

    joint = True

    def prepare(self, probe, batch, generator):
        return lambda z: (z - z.mean(0)).square().sum(1)


def test_the_pictures_of_a_joint_goal_move_together(net, batch, gen):
    found = Attack(Gather(), bim(steps=1))(net, batch, generator=gen())
    images = batch.images.clone().requires_grad_()
    z = net(images)
    (grad,) = torch.autograd.grad((z - z.mean(0)).square().sum(), images)
    assert torch.equal(found.images, Threat().project(images.detach() - 8 / 255 * grad.sign(),
                                                      batch.images))  # fmt: skip
    again = Attack(Gather(), mim(steps=5))(net, batch, generator=gen())
    spread = [(z - z.mean(0)).square().sum() for z in (net(again.images), net(batch.images))]
    assert spread[0] < spread[1]
    for solver, restarts in ((pgd(), 1), (bim(), 2)):
        with pytest.raises(UserError, match="together"):
            Attack(Gather(), solver, restarts=restarts)
