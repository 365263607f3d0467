"""Every attack under every threat: what is found is allowed, and no picture knows its mates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dmltk import Batch, Reference, UserError
from dmltk.attacks import Flee, Threat, build, normalized
from hypothesis import given, settings
from hypothesis import strategies as st

SPECS = ["stax", "mtax:targets=2,pick=nearest", "tma", "flee", "misrank", "apgd",
         "mim:goal=misrank,every=2", "apgd:goal=flee", "pgd:restarts=2", "fgsm"]  # fmt: skip
ALONE = ["stax", "mtax:targets=2", "fgsm", "bim:steps=3", "mim:steps=3", "pgd:steps=3",
         "pgd:goal=flee,steps=3", "pgd:goal=mtax,power=1,targets=2,steps=2,restarts=2",
         "stax:pick=permutation,solver=pgd,steps=2", "tma:pick=nearest",
         "apgd:steps=4"]  # fmt: skip
THREATS = st.one_of(
    st.tuples(st.sampled_from([0.0, 1e-3, 0.05, 1.0, 30.0]), st.just("l2")),
    st.tuples(st.sampled_from([0.0, 1e-4, 8 / 255, 1.0]), st.sampled_from(["linf", "none"])),
)


def judged(n, shape, dtype, generator) -> tuple[Batch, object]:
    """Pictures, the first rows of a reference of three classes, and a model of them."""
    images = (torch.rand(6, *shape, dtype=dtype, generator=generator) * 1.4 - 0.2).clamp(0, 1)
    weight = torch.randn(images[0].numel(), 3, dtype=dtype, generator=generator)

    def embed(x):
        return (x.flatten(1) @ weight).tanh()

    labels = torch.arange(6) % 3
    batch = Batch(images[:n], labels[:n], torch.arange(n), Reference(embed(images), labels))
    return batch, embed


def steps(spec: str, count: int) -> dict[str, object]:
    return {} if spec.startswith(("fgsm", "stax")) else {"steps": count}


def source(spec: str) -> dict[str, str]:
    return {} if "flee" in spec or "misrank" in spec else {"targets_from": "reference"}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(ALONE),
    st.integers(2, 5),
    st.sampled_from([(3, 4, 4), (1, 5, 3), (2, 1, 1)]),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([0.0, 1e-4, 8 / 255, 0.5, 1.0]),
    st.integers(0, 1000),
)
def test_ball_and_box_hold_for_all_shapes_types_and_radii(spec, n, shape, dtype, eps, seed):
    """PITFALLS 8: float32 and float64 pictures, never further than eps."""
    generator = torch.Generator().manual_seed(seed)
    images = (torch.rand(n, *shape, dtype=dtype, generator=generator) * 1.4 - 0.2).clamp(0, 1)
    weight = torch.randn(images[0].numel(), 3, dtype=dtype, generator=generator)
    batch = Batch(images, torch.arange(n))
    found = build(spec, eps=eps)(lambda x: (x.flatten(1) @ weight).tanh(), batch,
                                 generator=generator)  # fmt: skip
    adv = found.images
    assert adv.dtype == dtype and adv.shape == images.shape and not adv.requires_grad
    assert adv.min() >= 0 and adv.max() <= 1
    assert found.linf.shape == found.l2.shape == (n,)
    assert found.linf.max() <= eps + torch.finfo(dtype).eps
    change = (adv - images).flatten(1)
    assert torch.equal(found.linf, change.abs().amax(1))
    assert torch.allclose(found.l2, change.square().sum(1).sqrt())


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(SPECS),
    THREATS,
    st.sampled_from([None, 8]),
    st.integers(1, 4),
    st.sampled_from([(3, 4, 4), (1, 5, 3), (2, 1, 1)]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 4),
    st.integers(0, 1000),
)
def test_what_is_found_is_allowed(spec, threat, quantize, n, shape, dtype, count, seed):
    """PITFALLS 6, 8, 16, 21: a batch of one, eps of zero, either precision, eight bits."""
    (eps, norm), generator = threat, torch.Generator().manual_seed(seed)
    batch, embed = judged(n, shape, dtype, generator)
    attack = build(spec, eps=eps, norm=norm, quantize=quantize, **source(spec),
                   **steps(spec, count))  # fmt: skip
    found = attack(embed, batch, generator=generator)
    if eps == 0 or (count == 0 and steps(spec, 0)):
        assert found.images is batch.images
        return
    adv = found.images
    assert adv.dtype == dtype and adv.shape == batch.images.shape and not adv.requires_grad
    assert adv.min() >= 0 and adv.max() <= 1
    far = {"linf": found.linf, "l2": found.l2, "none": found.linf}[norm].max()
    assert far <= attack.threat.largest * (1 + 1e-5) + 1e-6
    if quantize:
        levels = adv.double() * 255
        whole = (levels - levels.round()).abs() < 1e-4
        assert (whole | (adv == batch.images)).all()
    if found.loss is not None:
        assert found.loss.shape == (n,) and torch.isfinite(found.loss).all()
        if isinstance(attack.goal, Flee):
            shift = (embed(adv) - embed(batch.images)).square().sum(1)
            assert torch.allclose(found.loss, -shift, atol=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    "spec",
    [
        "misrank:solver=bim,steps=4",
        "misrank:solver=apgd,steps=9,start=0",
        "tma:pick=nearest,steps=4,targets_from=reference",
        "mtax:pick=nearest,steps=4,targets_from=reference,targets=2",
    ],
)
def test_a_picture_is_attacked_alike_whatever_its_batch_mates(net, make, gen, norm, spec):
    batch, net = make(6, torch.float64, classes=3), net.double()
    whole = make(9, torch.float64, classes=3)
    batch = replace(batch, index=torch.arange(6),
                    reference=Reference(net(whole.images).detach(), whole.labels))  # fmt: skip
    attack = build(spec, norm=norm, eps=0.05 if norm == "linf" else 0.5)
    found = attack(net, batch, generator=gen()).images
    for rows in ([2], [5, 2], [1, 0, 4]):
        some = replace(batch, images=batch.images[rows], labels=batch.labels[rows],
                       index=batch.index[rows])  # fmt: skip
        alone = attack(net, some, generator=gen()).images
        assert torch.allclose(alone, found[rows], rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("spec", ["flee:steps=4", "flee:solver=apgd,steps=9,quantize=8"])
def test_the_first_picture_starts_alike_alone_and_in_a_batch(net, make, gen, norm, spec):
    """Start noise is drawn in order, whatever the norm."""
    batch, net = make(4, torch.float64), net.double()
    attack = build(spec, norm=norm, eps=0.1 if norm == "linf" else 0.5)
    found = attack(net, batch, generator=gen()).images
    first = attack(net, Batch(batch.images[:1]), generator=gen()).images
    assert torch.allclose(first[0], found[0], rtol=0, atol=1e-9)


def test_a_larger_euclidean_ball_is_a_stronger_attack(net, batch, gen):
    losses = [build("pgd:steps=20,start=0", norm="l2", eps=eps)(net, batch, generator=gen())
              .loss.mean().item() for eps in (0.01, 0.1, 1.0, 10.0)]  # fmt: skip
    assert losses == sorted(losses, reverse=True)


def test_without_a_norm_an_attack_uses_the_whole_box(net, batch, gen):
    found = build("pgd:norm=none,eps=1e-3")(net, batch, generator=gen())
    assert found.linf.max() > 0.5


def test_a_bound_per_channel_holds_for_an_attack(net, batch, gen):
    bounds = normalized(0.1, [0.229, 0.1, 0.0])
    for spec in ("pgd:steps=5", "apgd:steps=5", "bim:steps=5"):
        found = build(spec, eps=list(bounds))(net, batch, generator=gen())
        change = (found.images - batch.images).abs().amax(dim=(0, 2, 3))
        assert (change <= torch.tensor(bounds) + 1e-6).all() and change[1] > 0.9 * bounds[1]
    with pytest.raises(UserError, match="2 numbers and the pictures have 3 channels"):
        build("pgd", eps=[0.1, 0.1])(net, batch, generator=gen())


def test_an_attack_survives_being_saved_in_eight_bits(net, batch, gen):
    """PITFALLS 16: what is returned is what the file would hold, and its loss is that loss."""
    batch = replace(batch, images=(batch.images * 255).round() / 255)
    found = build("flee:quantize=8", eps=2.5 / 255)(net, batch, generator=gen())
    saved = (found.images * 255).round().to(torch.uint8)
    assert torch.equal(saved.float() / 255, found.images)
    assert found.linf.max() <= 2 / 255 + 1e-6
    shift = (net(found.images) - net(batch.images)).square().sum(1)
    assert torch.allclose(found.loss, -shift, atol=1e-6)
    assert Threat(2.5 / 255).allows(found.images, batch.images)


def test_an_attack_that_knows_no_loss_stays_without_one_in_eight_bits(net, batch, gen):
    found = build("bim:quantize=8,steps=2")(net, batch, generator=gen())
    assert found.loss is None and found.forwards == net.seen == 16
    assert build("pgd:quantize=8,steps=2")(net, batch, generator=gen()).loss.shape == (8,)


@pytest.mark.parametrize("spec", ["flee:steps=2", "flee:solver=apgd,steps=3,norm=l2,eps=.5",
                                  "flee:steps=2,quantize=8,select=last"])  # fmt: skip
def test_restarts_keep_each_pictures_lowest_loss(net, batch, gen, spec):
    """PITFALLS 14: the worst of all, picture by picture, by trying each alone."""
    attack = build(spec, restarts=4)
    found = attack(net, batch, generator=gen())
    single, generator = replace(attack, restarts=1), gen()
    each = [single(net, batch, generator=generator).images for _ in range(4)]
    with torch.no_grad():
        losses = torch.stack([-(net(adv) - net(batch.images)).square().sum(1) for adv in each])
    assert torch.allclose(found.loss, losses.amin(0), atol=1e-6)
    picked = torch.stack(each)[losses.argmin(0), torch.arange(8)]
    assert torch.equal(found.images, picked)
    shift = (net(found.images) - net(batch.images)).square().sum(1)
    assert torch.allclose(found.loss, -shift, atol=1e-6)
