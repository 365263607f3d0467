"""What holds for every attack, whatever its goal and solver."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from dmltk import Batch, DmltkError, Reference, UserError
from dmltk.attacks import Attack, Descent, Flee, Mtax, Stax, Threat, bim, build, fgsm, mim, pgd

SPECS = ["stax", "mtax:targets=2", "fgsm", "bim:steps=3", "mim:steps=3", "pgd:steps=3",
         "pgd:goal=flee,steps=3", "pgd:goal=mtax,power=1,targets=2,steps=2,restarts=2",
         "stax:pick=permutation,solver=pgd,steps=2", "tma:pick=nearest", "flee:steps=2",
         "apgd:steps=4", "nes:queries=9,population=2", "square:queries=5", "noise",
         "noise:goal=flee,tries=2,draw=sign", "pgd:steps=2,eot=2"]  # fmt: skip


class Scalar:
    """A goal whose loss is one number for the whole batch."""

    def prepare(self, probe, batch, generator):
        return lambda z: z.square().sum()


@dataclass(frozen=True)
class Fixed:
    """A solver that returns what it was made with."""

    change: float

    def __call__(self, probe, images, threat, generator):
        return images + self.change


@pytest.mark.parametrize("spec", SPECS)
def test_eps_of_zero_returns_the_very_same_pictures(net, batch, gen, spec):
    """PITFALLS 6: eps=0 is the clean accuracy, bit for bit."""
    found = build(spec, eps=0)(net, batch, generator=gen())
    assert found.images is batch.images
    assert found.linf.tolist() == found.l2.tolist() == [0] * 8


@pytest.mark.parametrize("solver", [pgd(steps=0), bim(steps=0), mim(steps=0)])
@pytest.mark.parametrize("restarts", [1, 2])
def test_no_steps_return_the_very_same_pictures(net, batch, gen, solver, restarts):
    found = Attack(Stax(), solver, restarts=restarts)(net, batch, generator=gen())
    assert found.images is batch.images and found.loss is None


def test_no_steps_return_the_very_same_pictures_in_inference_mode(net, gen):
    with torch.inference_mode():
        images = torch.rand(4, 3, 8, 8)
        batch = Batch(images, torch.arange(4))
        assert build("pgd:steps=0")(net, batch, generator=gen()).images is images


@pytest.mark.parametrize("spec", ["stax", "mtax:targets=2", "stax:pick=permutation", "fgsm"])
def test_one_step_in_the_batch_costs_one_forward_and_one_backward(net, batch, gen, spec):
    found = build(spec)(net, batch, generator=gen())
    assert net.seen == found.forwards == found.backwards == 8
    assert found.loss is None and found.start_loss.shape == (8,)


@pytest.mark.parametrize(
    ("spec", "forwards", "backwards"),
    [
        ("bim:steps=5", 5, 5),
        ("mim:steps=5", 5, 5),
        ("pgd:steps=5", 7, 5),  # targets, five gradients, the last loss
        ("pgd:steps=5,start=0", 6, 5),
        ("pgd:steps=5,start=0,select=last", 5, 5),
        ("pgd:steps=5,restarts=3", 19, 15),
        ("pgd:steps=5,select=last,restarts=3", 19, 15),
    ],
)
def test_every_pass_is_counted_a_picture(net, batch, gen, spec, forwards, backwards):
    found = build(spec)(net, batch, generator=gen())
    assert net.seen == found.forwards == forwards * 8
    assert found.backwards == backwards * 8


def test_targets_from_a_reference_cost_no_pass(net, batch, gen):
    batch = replace(batch, reference=Reference(net(batch.images).detach(), batch.labels))
    net.seen = 0
    build("stax:targets_from=reference")(net, batch, generator=gen())
    assert net.seen == 8


@pytest.mark.parametrize("spec", SPECS)
def test_a_seed_gives_the_same_pictures_again(net, batch, gen, spec):
    """PITFALLS 12: draws come from the generator handed in, never from global state."""
    attack = build(spec)
    state = torch.get_rng_state()
    first = attack(net, batch, generator=gen(1)).images
    torch.manual_seed(99)
    assert torch.equal(first, attack(net, batch, generator=gen(1)).images)
    torch.set_rng_state(state)


def test_another_seed_gives_other_pictures(net, batch, gen):
    first, second = (build("pgd:steps=2")(net, batch, generator=gen(s)).images for s in (1, 2))
    assert not torch.equal(first, second)


def test_the_global_random_state_is_neither_read_nor_moved(net, batch, gen):
    """PITFALLS 12."""
    before = torch.get_rng_state()
    build("pgd")(net, batch, generator=gen())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("solver", ["bim", "mim"])
def test_a_picture_is_attacked_alike_whatever_its_batch_mates(net, make, gen, solver):
    spec = f"{solver}:steps=4,targets_from=reference"
    batch, net = make(4, torch.float64, classes=2), net.double()
    reference = Reference(net(make(2, torch.float64, seed=5).images).detach(), torch.tensor([0, 1]))
    batch = replace(batch, reference=reference)
    whole = build(spec)(net, batch, generator=gen()).images
    for i in range(4):
        alone = replace(batch, images=batch.images[i : i + 1], labels=batch.labels[i : i + 1])
        assert torch.equal(build(spec)(net, alone, generator=gen()).images[0], whole[i])


def test_flee_moves_a_picture_alike_whatever_its_batch_mates(net, make, gen):
    """Start noise is drawn in order: the first picture alone has the noise it has in a batch."""
    batch, net = make(4, torch.float64), net.double()
    whole = build("pgd:goal=flee,steps=4")(net, batch, generator=gen()).images
    first = replace(batch, images=batch.images[:1], labels=None)
    assert torch.equal(build("pgd:goal=flee,steps=4")(net, first, generator=gen()).images[0],
                       whole[0])  # fmt: skip


def test_a_loss_of_the_whole_batch_allows_one_start_and_the_last_iterate(net, batch, gen):
    found = Attack(Scalar(), bim(steps=2))(net, batch, generator=gen())
    assert found.start_loss.shape == () and found.loss is None
    with pytest.raises(UserError, match="select=last"):
        Attack(Scalar(), pgd(steps=2))(net, batch, generator=gen())
    with pytest.raises(UserError, match="restarts"):
        Attack(Scalar(), bim(steps=2), restarts=2)(net, batch, generator=gen())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("spec", ["stax", "pgd:steps=2", "pgd:goal=flee,steps=2"])
def test_gradients_are_taken_whatever_is_switched_off_outside(net, batch, gen, spec, context):
    """PITFALLS 20: called under no_grad or inference_mode."""
    expected = build(spec)(net, batch, generator=gen()).images
    with context():
        inside = replace(batch, images=batch.images.clone(), labels=batch.labels.clone())
        found = build(spec)(net, inside, generator=gen()).images
    assert torch.equal(found, expected)


def test_a_reference_made_in_inference_mode_can_be_aimed_at(net, batch, gen):
    with torch.inference_mode():
        batch = replace(batch, reference=Reference(net(batch.images), batch.labels.clone()))
    build("pgd:targets_from=reference,power=1")(net, batch, generator=gen())


@pytest.mark.parametrize("frozen", [False, True])
def test_no_gradient_of_a_weight_appears_and_those_there_stay(net, batch, gen, frozen):
    """PITFALLS 10: parameter gradients pile up."""
    net.requires_grad_(not frozen)
    net.fc.bias.grad = torch.ones(6)
    build("pgd:steps=3")(net, batch, generator=gen())
    assert [name for name, p in net.named_parameters() if p.grad is not None] == ["fc.bias"]
    assert net.fc.bias.grad.tolist() == [1] * 6


def test_nothing_returned_keeps_the_graph(net, batch, gen):
    """PITFALLS 11: returned tensors keep the graph."""
    images = batch.images.clone().requires_grad_()
    for restarts in (1, 2):
        found = build("pgd", restarts=restarts)(net, replace(batch, images=images), generator=gen())
        for tensor in (found.images, found.loss, found.start_loss, found.linf, found.l2):
            assert not tensor.requires_grad


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_training_model_is_bit_identical_after_an_attack(net, batch, gen, mode):
    """PITFALLS 1, 2: modes and statistics, and a normaliser frozen in a training model."""
    net.train()
    net.bn.eval()
    before = copy.deepcopy(net.state_dict())
    modes = [m.training for m in net.modules()]
    build("pgd:steps=2", mode=mode)(net, batch, generator=gen())
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


def test_mode_train_attacks_the_batch_statistics(net, batch, gen):
    """PITFALLS 2: which statistics the attack used is an argument."""
    net.train()
    before = copy.deepcopy(net.state_dict())
    per_mode = [build("bim", mode=mode)(net, batch, generator=gen()) for mode in ("eval", "train")]
    assert not torch.allclose(per_mode[0].start_loss, per_mode[1].start_loss)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("spec", ["mtax:targets=2", "pgd:steps=3"])
def test_pictures_keep_their_precision_whatever_the_models(net, make, gen, dtype, model, spec):
    """PITFALLS 8: where bf16 ran elsewhere, eps was exceeded by rounding."""
    batch = make(6, dtype)
    found = build(spec)(net.to(model), batch, generator=gen())
    assert found.images.dtype == dtype and found.start_loss.dtype == dtype
    assert 0.9 * 8 / 255 < found.linf.max() <= 8 / 255 + torch.finfo(dtype).eps


def test_under_autocast_pictures_stay_float32(net, batch, gen):
    """PITFALLS 8."""
    with torch.autocast("cpu", torch.bfloat16):
        found = build("pgd:steps=2")(net, batch, generator=gen())
    assert found.images.dtype == found.loss.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.int64])
def test_pictures_of_another_precision_are_refused(net, gen, dtype):
    """PITFALLS 8."""
    batch = Batch(torch.zeros(2, 3, 8, 8, dtype=dtype), torch.arange(2))
    with pytest.raises(UserError, match="float32 or float64"):
        build("stax")(net, batch, generator=gen())


@pytest.mark.parametrize(
    ("low", "high", "cause"), [(0, 255, "divide by 255"), (-2.1, 2.6, "normalized"),
                               (0, 1.1, "normalized"), (-1, 1, "normalized")]
)  # fmt: skip
def test_pictures_outside_the_range_are_refused_with_the_cause(net, batch, gen, low, high, cause):
    """PITFALLS 5: inputs outside [0, 1] clamped silently."""
    images = batch.images * (high - low) + low
    with pytest.raises(UserError, match=cause) as error:
        build("stax", eps=0)(net, replace(batch, images=images), generator=gen())
    assert f"[{low:g}, {high:g}]" in str(error.value)


def test_a_rounding_outside_the_range_is_taken(net, batch, gen):
    """PITFALLS 5: tolerance 1e-6."""
    images = batch.images * (1 + 5e-7) - 2e-7
    found = build("pgd", eps=1e-5)(net, replace(batch, images=images), generator=gen())
    assert found.images.min() >= 0 and found.images.max() <= 1


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (3, 8, 8), (2, 3, 8, 8, 1)])
def test_pictures_of_another_shape_are_refused(net, gen, shape):
    with pytest.raises(UserError, match="N, C, H, W"):
        build("stax")(net, Batch(torch.zeros(shape)), generator=gen())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_pictures_that_are_not_finite_are_refused(net, batch, gen, value):
    batch.images[1, 2, 3, 4] = value
    with pytest.raises(UserError, match="not finite"):
        build("stax")(net, batch, generator=gen())


def test_flee_from_the_clean_pictures_is_refused_when_built():
    """PITFALLS 7: no gradient at zero distance."""
    for solver in (fgsm(), bim(), mim(), pgd(start=0), Descent(3)):
        with pytest.raises(UserError, match="random start"):
            Attack(Flee(), solver)
    assert Attack(Flee(), pgd()) and Attack(Flee(), pgd(start=1e-3))


@pytest.mark.parametrize("goal", [Flee(), Stax(), Mtax(power=1), Stax(targets_from="reference")])
@pytest.mark.parametrize("n", [1, 2])
def test_batches_of_one_and_two(net, make, gen, goal, n):
    """PITFALLS 13, 21: a batch of one crashes; too few classes end in an index error."""
    batch = make(n)
    reference = Reference(net(batch.images).detach()[:1], torch.tensor([7]))
    attack = Attack(goal, pgd(steps=2))
    if n == 1 and getattr(goal, "targets_from", "") == "batch":
        with pytest.raises(UserError, match="no other class"):
            attack(net, batch, generator=gen())
    elif isinstance(goal, Mtax):
        with pytest.warns(UserWarning, match="only 1 other"):
            attack(net, batch, generator=gen())
    else:
        found = attack(net, replace(batch, reference=reference), generator=gen())
        assert found.images.shape == (n, 3, 8, 8)


def test_a_solver_that_leaves_the_threat_is_caught(net, batch, gen):
    batch = replace(batch, images=batch.images * 0.5)
    Attack(Stax(), Fixed(0.01), Threat(0.01))(net, batch, generator=gen())
    with pytest.raises(DmltkError, match="Fixed returned pictures that the threat"):
        Attack(Stax(), Fixed(0.02), Threat(0.01))(net, batch, generator=gen())


def test_channels_last_pictures_give_the_same_result(net, batch, gen):
    other = replace(batch, images=batch.images.to(memory_format=torch.channels_last))
    first, second = (build("pgd:steps=3")(net, b, generator=gen()).images for b in (batch, other))
    assert torch.allclose(first, second, atol=1e-6)


def test_model_and_pictures_stay_where_they_are(net, batch, gen):
    """PITFALLS 9: the attack moves the user's model or input."""
    before = [(p.device, p.data_ptr()) for p in net.parameters()]
    images, at = batch.images.clone(), batch.images.data_ptr()
    found = build("pgd:steps=3")(net, batch, generator=gen())
    assert [(p.device, p.data_ptr()) for p in net.parameters()] == before
    assert torch.equal(images, batch.images) and batch.images.data_ptr() == at
    assert found.images.device == batch.images.device


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("spec", SPECS)
def test_an_attack_follows_its_input_to_the_gpu(net, batch, gen, spec):
    """PITFALLS 9: the device is the input's, at call time; draws are those of the CPU."""
    on_cpu = build(spec)(net.double(), replace(batch, images=batch.images.double()),
                         generator=gen()).images  # fmt: skip
    there = Batch(batch.images.double().cuda(), batch.labels.cuda())
    found = build(spec)(net.cuda(), there, generator=gen())
    assert found.images.is_cuda and found.linf.is_cuda
    assert torch.allclose(found.images.cpu(), on_cpu, atol=1e-6)
