from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from dmltk import UserError
from dmltk.attacks import Attack, Stax, guard, pgd
from torch import nn


def state(module: nn.Module) -> dict:
    """All that a guard promises to keep, as plain values."""
    return {
        "training": [m.training for m in module.modules()],
        "requires_grad": [p.requires_grad for p in module.parameters()],
        "grad": [(id(p.grad), None if p.grad is None else p.grad.tolist())
                 for p in module.parameters()],
        "buffers": [(name, id(b), b.tolist()) for name, b in module.named_buffers()],
        "random": (random.getstate(), np.random.get_state()[1].tolist(),
                   torch.get_rng_state().tolist()),
    }  # fmt: skip


def rude(module: nn.Module, images: torch.Tensor) -> None:
    """What the attacks of other libraries were seen to do, and worse."""
    module(images)
    module.train()
    module(images).sum().backward()
    for parameter in module.parameters():
        parameter.requires_grad_(not parameter.requires_grad)
        if parameter.grad is not None:
            parameter.grad.data.zero_()
    module.bn.running_mean.data.fill_(7.0)
    module.bn.running_var = torch.ones(8)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@pytest.fixture
def model(net):
    """Training, with a frozen normaliser, one frozen weight and one gradient in place."""
    net.train()
    net.bn.eval()
    net.conv.bias.requires_grad_(False)
    net.fc.weight.grad = torch.full_like(net.fc.weight, 3.0)
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    return net


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["module", "lambda"])
def test_everything_is_as_before_after_a_rude_attack(model, batch, mode, wrapped):
    """PITFALLS 1, 10, 12: modes, gradients and the global random state."""
    before = state(model)
    with guard((lambda x: model(x)) if wrapped else model, mode):
        rude(model, batch.images)
    assert state(model) == before


@pytest.mark.parametrize("wrapped", [False, True], ids=["module", "lambda"])
def test_everything_is_as_before_after_an_exception(model, batch, wrapped):
    before = state(model)
    with pytest.raises(ZeroDivisionError), guard((lambda x: model(x)) if wrapped else model):
        rude(model, batch.images)
        raise ZeroDivisionError
    assert state(model) == before


def test_in_eval_mode_every_module_is_in_eval_however_late_it_is_found(model, batch):
    seen = []
    model.conv.register_forward_pre_hook(
        lambda *_: seen.append([m.training for m in model.modules()])
    )
    with guard(lambda x: model(x), "eval"):
        model(batch.images)
    with guard(model, "eval"):
        model(batch.images)
    assert seen == [[False] * 4] * 2


def test_in_train_mode_every_module_stays_as_it_was_found(model, batch):
    """PITFALLS 1: a normaliser frozen in a training model stays frozen."""
    before = [m.training for m in model.modules()]
    with guard(model, "train"):
        assert [m.training for m in model.modules()] == before
        model(batch.images)
    assert model.training and not model.bn.training


def test_batch_statistics_are_used_in_train_mode_and_the_buffers_restored(net, batch):
    """PITFALLS 2: an attack never moves the statistics."""
    net.train()
    before = state(net)
    with guard(net, "train"):
        inside = net(batch.images)
        assert not torch.equal(net.bn.running_mean, torch.tensor(before["buffers"][0][2]))
    assert state(net) == before
    assert not torch.allclose(inside, net.eval()(batch.images), atol=1e-3)


def test_a_buffer_that_did_not_change_is_not_written(model, batch):
    version = model.bn.running_mean._version
    with guard(model):
        model(batch.images)
    assert model.bn.running_mean._version == version


def test_a_method_of_a_module_is_guarded_with_its_whole_owner(model, batch):
    before = state(model)
    with guard(model.forward):
        assert not model.training
        rude(model, batch.images)
    assert state(model) == before


def test_the_watch_on_modules_ends_with_the_attack(batch, net):
    net.train()
    with guard(lambda x: x):
        pass
    net(batch.images)
    assert net.training


def test_gradients_are_on_inside_whatever_is_outside(net):
    with torch.inference_mode(), guard(net):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.no_grad(), guard(net):
        assert torch.is_grad_enabled()


def test_training_after_an_attack_under_autocast_still_reaches_the_weights(net, batch):
    """Older versions of torch kept the cast weights of a pass without gradients in its cache."""
    net.train()
    with torch.autocast("cpu", torch.bfloat16):
        with guard(net), torch.no_grad():
            net(batch.images)
        net(batch.images).sum().backward()
    assert net.conv.weight.grad is not None and net.fc.weight.grad is not None


def test_an_attack_in_inference_mode_under_autocast_meets_no_inference_tensors(net, batch, gen):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        net(batch.images)
        Attack(Stax(), pgd(steps=1))(net, batch, generator=gen())


def test_a_failing_attack_leaves_the_model_alone(model, batch, gen):
    before = state(model)
    with pytest.raises(UserError):
        Attack(Stax(), pgd())(lambda x: {"z": model(x)}, batch, generator=gen())
    assert state(model) == before
