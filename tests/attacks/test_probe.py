from __future__ import annotations

import pytest
import torch
from dmltk import DmltkError, UserError
from dmltk.attacks import Probe
from torch import nn


def norm(z):
    return z.square().sum(1)


@pytest.fixture
def probe(net):
    probe = Probe(net)
    probe.objective = lambda z: z[:, 0]
    return probe


def test_an_embedding_and_a_gradient_of_the_same_pictures_share_one_pass(probe, net, batch):
    z = probe.embed(batch.images)
    loss, grad = probe.gradient(batch.images)
    assert net.seen == probe.forwards == probe.backwards == 8
    assert not z.requires_grad and not loss.requires_grad and not grad.requires_grad
    assert torch.equal(loss, z[:, 0])


def test_a_copy_of_the_pictures_is_other_pictures(probe, net, batch):
    probe.embed(batch.images)
    probe.gradient(batch.images.clone())
    assert net.seen == probe.forwards == 16


def test_pictures_changed_in_place_are_embedded_anew(probe, net, batch):
    first = probe.embed(batch.images)
    batch.images.mul_(0.5)
    assert not torch.equal(first, probe.embed(batch.images))
    assert net.seen == 16


def test_a_loss_is_recalled_for_the_very_same_pictures_only(probe, net, batch):
    loss, _ = probe.gradient(batch.images)
    assert torch.equal(probe.recall(batch.images), loss)
    assert torch.equal(probe.loss(batch.images), loss) and net.seen == 8
    assert probe.recall(batch.images.clone()) is None
    batch.images.mul_(0.5)
    assert probe.recall(batch.images) is None


def test_the_gradient_equals_a_central_difference(net, make):
    batch = make(3, torch.float64)
    probe = Probe(net.double())
    probe.objective = lambda z: (z * torch.arange(6)).sum(1)
    _, grad = probe.gradient(batch.images)
    step = torch.zeros_like(batch.images)
    step[:, 1, 2, 3] = 1e-6
    up, down = probe.loss(batch.images + step), probe.loss(batch.images - step)
    assert torch.allclose((up - down) / 2e-6, grad[:, 1, 2, 3], atol=1e-8)


@pytest.mark.parametrize("model", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("pictures", [torch.float32, torch.float64])
def test_pictures_are_cast_at_the_door_and_keep_their_precision(net, make, model, pictures):
    """PITFALLS 8: half and double precision."""
    came = []
    net.register_forward_pre_hook(lambda _, args: came.append(args[0].dtype))
    probe = Probe(net.to(model))
    probe.objective = norm
    images = make(4, pictures).images
    assert probe.embed(images).dtype == pictures
    loss, grad = probe.gradient(images)
    assert (loss.dtype, grad.dtype) == (pictures, pictures)
    assert came == [model]


def test_a_bare_callable_is_handed_the_pictures_as_they_are(make):
    came = []
    probe = Probe(lambda x: came.append(x.dtype) or x.flatten(1))
    probe.embed(make(2, torch.float64).images)
    assert came == [torch.float64]


def test_under_autocast_the_loss_is_computed_in_float32(net, batch):
    probe = Probe(net)
    probe.objective = lambda z: (z @ z.T).sum(1)
    with torch.autocast("cpu", torch.bfloat16):
        came = net(batch.images)
        loss, grad = probe.gradient(batch.images)
    assert came.dtype == torch.bfloat16
    assert torch.equal(loss, probe.objective(came.float()))
    assert loss.dtype == grad.dtype == torch.float32


def test_a_gradient_of_exactly_zero_is_counted(batch):
    probe = Probe(lambda x: x.flatten(1) * (torch.arange(8) > 2)[:, None])
    probe.objective = norm
    probe.gradient(batch.images + 0.1)
    assert probe.zero_gradients == 3


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (lambda x: {"logits": x}, "dict with keys logits"),
        (lambda x: (x, x), "tuple of 2"),
        (lambda x: x, r"shape \(8, 3, 8, 8\)"),
        (lambda x: x.flatten(1)[:4], r"shape \(4, 192\)"),
        (lambda x: x.flatten(1).argmax(1)[:, None], "torch.int64"),
        (lambda x: None, "NoneType"),
    ],
)
def test_an_output_that_is_no_embedding_is_named(batch, output, named):
    """PITFALLS 19: the model returns a dict or a tuple."""
    with pytest.raises(UserError, match=named):
        Probe(output).embed(batch.images)


def test_several_heads_reach_an_objective_that_takes_them(batch):
    def two(x):
        return {"embed": x.flatten(1), "proj": x.flatten(1).half()}

    probe = Probe(two, takes_heads=True)
    probe.objective = lambda heads: norm(heads["embed"]) + norm(heads["proj"])
    heads = probe.embed(batch.images)
    assert list(heads) == ["embed", "proj"]
    assert all(z.dtype == torch.float32 and not z.requires_grad for z in heads.values())
    assert probe.gradient(batch.images)[0].shape == (8,)
    with pytest.raises(UserError, match="tuple"):
        Probe(lambda x: {"embed": (x, x)}, takes_heads=True).embed(batch.images)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_raises(probe, batch, bad):
    """PITFALLS 7: sign(NaN) is 0 and the attack would stand still."""
    probe.objective = lambda z: z[:, 0] * bad
    with pytest.raises(DmltkError, match="not finite"):
        probe.gradient(batch.images)


def test_a_gradient_that_is_not_finite_raises(probe, batch):
    """PITFALLS 7: the root of a sum of squares has none at zero."""
    clean = probe.embed(batch.images)
    probe.objective = lambda z: (z - clean).square().sum(1).sqrt()
    with pytest.raises(DmltkError, match=r"gradient .* not finite"):
        probe.gradient(batch.images)


def test_a_model_that_detaches_is_refused_in_a_sentence(batch):
    probe = Probe(lambda x: x.flatten(1).detach())
    probe.objective = norm
    with pytest.raises(UserError, match="carry no gradient"):
        probe.gradient(batch.images)
    weight = nn.Parameter(torch.ones(8, 2))
    probe = Probe(lambda x: weight)
    probe.objective = norm
    with pytest.raises(UserError, match="does not depend"):
        probe.gradient(batch.images)


def test_a_loss_of_a_wrong_shape_is_refused(probe, batch):
    probe.objective = lambda z: z
    with pytest.raises(UserError, match=r"\(8, 6\)"):
        probe.gradient(batch.images)
