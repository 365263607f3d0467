"""Every class keeps its bound, leaves nothing behind, and is counted truly."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dmltk import Batch, registry
from dmltk.errors import DmltkError, UserError
from dmltk_torchattacks import solver
from dmltk_torchattacks.table import TABLE
from torch import nn

USABLE = [name for name, row in TABLE.items() if row.way != "refused"]
BOUNDED = [name for name in USABLE if TABLE[name].norm != "none"]
AIMING = [name for name, row in TABLE.items() if row.aims != "never"]
CONTEXT = {"targets_from": "reference"}


def build(name: str, arguments: dict[str, Any], **more: Any):
    eps = {"eps": 8 / 255} if TABLE[name].norm == "linf" else {}
    return registry.build(
        "attacks", "torchattacks", context={**CONTEXT, **eps}, name=name, **arguments, **more
    )


class Count:
    """Passes through a module, seen from outside."""

    def __init__(self, module: nn.Module) -> None:
        self.forwards = self.backwards = 0
        self.modes: set[bool] = set()
        module.register_forward_hook(self.forward)
        module.register_full_backward_hook(self.backward)

    def forward(self, module, inputs, output) -> None:
        self.forwards += len(output)
        self.modes.add(module.training)

    def backward(self, module, grad_inputs, grad_outputs) -> None:
        self.backwards += len(grad_outputs[0])


def state(net: nn.Module) -> dict[str, Any]:
    """All that an attack might change."""
    return {
        **{f"mode {name}": module.training for name, module in net.named_modules()},
        **{f"grad {name}": p.grad for name, p in net.named_parameters()},
        **{f"asks {name}": p.requires_grad for name, p in net.named_parameters()},
        **{name: value.clone() for name, value in net.state_dict().items()},
        "random": (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and not isinstance(b[0], int):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, torch.Tensor | np.ndarray):
        return bool((a == b).all())
    return bool(a == b)


@pytest.mark.parametrize("pictures", [1, 4])
@pytest.mark.parametrize("name", USABLE)
def test_inside_the_bound_nothing_left_behind_and_counted_truly(
    net, make, gen, tiny, name, pictures
):
    """One run in float32, of a model in training whose normalizer is frozen."""
    net.train()
    net.bn.eval()
    batch = make(pictures, net)
    attack, count = build(name, tiny(name)), Count(net)
    before, given = state(net), batch.images.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = attack(net, batch, generator=gen(5))
    assert all(
        same(value, state_of)
        for value, state_of in zip(before.values(), state(net).values(), strict=True)
    )
    assert torch.equal(batch.images, given)
    assert result.images.shape == given.shape and result.images.dtype == given.dtype
    assert not result.images.requires_grad
    assert attack.threat.allows(result.images, given)
    assert result.images.min() >= 0 and result.images.max() <= 1
    assert (result.forwards, result.backwards) == (count.forwards, count.backwards)
    assert count.modes <= {False}
    if TABLE[name].gradient_free:
        assert result.backwards == 0


@pytest.mark.parametrize("name", USABLE)
def test_float64_pictures_channels_last_and_the_same_seed_again(
    net, make, gen, tiny, channels_last, name
):
    net = net.double()
    batch = channels_last(make(3, net, torch.float64))
    attack = build(name, tiny(name))
    found = [attack(net, batch, generator=gen(seed)).images for seed in (5, 5)]
    assert found[0].dtype == torch.float64
    assert attack.threat.allows(found[0], batch.images)
    assert torch.equal(*found)


@pytest.mark.parametrize("name", USABLE)
def test_models_of_bfloat16_keep_the_pictures_precision(net, make, gen, tiny, name):
    net = net.bfloat16()
    batch = make(2, net)
    attack = build(name, tiny(name))
    result = attack(net, batch, generator=gen(5))
    assert result.images.dtype == torch.float32
    assert attack.threat.allows(result.images, batch.images)


@pytest.mark.parametrize("name", BOUNDED)
def test_no_bound_returns_the_very_pictures(net, make, gen, tiny, name):
    batch = make(2, net)
    result = build(name, {**tiny(name), "eps": 0})(net, batch, generator=gen())
    assert result.images is batch.images and result.forwards == 0


@pytest.mark.parametrize("name", ["APGD", "APGDT", "FAB", "Square", "AutoAttack"])
def test_classes_with_a_choice_of_norm_keep_l2(net, make, gen, tiny, name):
    batch = make(3, net)
    attack = build(name, {**tiny(name), "eps": 2.0}, norm="l2")
    result = attack(net, batch, generator=gen())
    assert attack.threat.allows(result.images, batch.images)
    assert result.l2.max() > 0 or name == "Square"


@pytest.mark.parametrize("name", AIMING)
def test_aiming_at_a_goal_s_class_runs(net, make, gen, tiny, name):
    batch = make(3, net)
    attack = build(name, tiny(name), goal="mtax(targets=2)")
    result = attack(net, batch, generator=gen())
    assert attack.threat.allows(result.images, batch.images)


@pytest.mark.parametrize("name", ["PGD", "TIFGSM", "PGDL2", "CW", "FAB", "JSMA"])
def test_under_autocast_and_without_gradients_outside(net, make, gen, tiny, name):
    batch = make(2, net)
    attack = build(name, tiny(name))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        result = attack(net, batch, generator=gen())
    assert attack.threat.allows(result.images, batch.images)
    with torch.inference_mode():
        attack(net, batch, generator=gen())


def test_train_mode_uses_the_statistics_of_the_batch(net, make, gen):
    net.train()
    batch = make(4, net)
    count, before = Count(net), net.bn.running_mean.clone()
    attack = build("PGD", {"steps": 2}, mode="train")
    attack(net, batch, generator=gen())
    assert count.modes == {True} and torch.equal(net.bn.running_mean, before)


def test_an_existing_gradient_of_the_weights_stays(net, make, gen, tiny):
    batch = make(2, net)
    net.fc.weight.grad = torch.ones_like(net.fc.weight)
    for name in ("CW", "PIFGSM", "DeepFool"):
        build(name, tiny(name))(net, batch, generator=gen())
    assert torch.equal(net.fc.weight.grad, torch.ones_like(net.fc.weight))


def test_eight_bits_are_kept(net, make, gen):
    batch = make(2, net)
    found = build("PGD", {"steps": 2, "quantize": 8})(net, batch, generator=gen()).images * 255
    assert (found - found.round()).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["TIFGSM", "PIFGSM", "PIFGSMPP"])
def test_grey_pictures_are_refused_where_three_channels_are_built_in(make, net, gen, tiny, name):
    batch = replace(make(2, net), images=torch.rand(2, 1, 8, 8))
    with pytest.raises(UserError, match=f"{name} takes pictures of three channels"):
        build(name, tiny(name))(
            lambda images: net(images.expand(-1, 3, -1, -1)), batch, generator=gen()
        )


class Half(nn.Module):
    """Embeds bright pictures by their colour, and dark ones all alike."""

    def forward(self, images):
        return images.mean((2, 3)) * (images.mean((1, 2, 3)) > 0.4)[:, None]


def dim_and_bright() -> Batch:
    images = torch.full((2, 3, 4, 4), 0.2)
    images[1, 0] = 0.9
    images[1, 1:] = 0.5
    return Batch(images, torch.tensor([0, 1]))


@pytest.mark.parametrize("name", ["PGD", "MIFGSM", "PGDL2", "VMIFGSM"])
def test_a_zero_gradient_moves_nothing_and_is_counted(gen, tiny, name):
    attack = build(name, {**tiny(name), "targets_from": "batch"})
    result = attack(Half(), dim_and_bright(), generator=gen())
    assert torch.isfinite(result.images).all() and result.linf[1] > 0
    assert result.zero_gradients == result.backwards / 2


def test_a_picture_that_a_class_loses_to_a_zero_gradient_stays_clean(gen):
    attack = build("DeepFool", {"steps": 5, "targets_from": "batch"})
    with pytest.warns(UserWarning, match="DeepFool returned 1 of 2 pictures"):
        result = attack(Half(), dim_and_bright(), generator=gen())
    assert result.linf[0] == 0 and result.linf[1] > 0


def test_a_failure_inside_names_the_class(net, make, gen):
    attack = build("DIFGSM", {"steps": 1, "resize_rate": 1.0})
    with pytest.raises(DmltkError, match="torchattacks:DIFGSM failed"):
        attack(net, make(2, net), generator=gen())


def test_pictures_outside_the_bound_are_an_error(net, make, gen, monkeypatch):
    class Loose:
        def __init__(self, model, eps=0.1):
            pass

        def __call__(self, images, labels):
            return (images + 0.5).clamp(0, 1)

    monkeypatch.setattr(solver, "find", lambda name: (Loose, TABLE["FGSM"]))
    attack = build("FGSM", {})
    with pytest.raises(DmltkError, match="FGSM returned pictures that the threat does not allow"):
        attack(net, make(2, net), generator=gen())


def test_a_model_without_a_gradient_is_told_so(net, make, gen, tiny):
    def embed(images):
        return net(images).detach()

    batch = make(2, net)
    for name in ("PGD", "CW"):
        with pytest.raises(UserError, match="carry no gradient"):
            build(name, tiny(name))(embed, batch, generator=gen())
    for name in ("SPSA", "Square", "OnePixel", "Pixle", "GN"):
        build(name, tiny(name))(embed, batch, generator=gen())
