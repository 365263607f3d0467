"""Rotations, shifts, flows and mixes of channels: bounded by the box alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import dmltk
import pytest
import torch
from dmltk import Batch, UserError
from dmltk.attacks import Attack, Colour, Flee, Probe, Rotation, Stadv, Stax, Threat, build, pgd
from dmltk.attacks.colour import mix
from dmltk.attacks.spatial import moved, variation, warp
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as vision

BOX = Threat(norm="none")
SOLVERS = [Rotation(angles=5, steps=3), Rotation(10, 4, 0.2, 2, "border"), Rotation(angles=1),
           Stadv(4), Stadv(3, start=0.5), Colour(6), Colour(6, 0.3),
           Colour(6, weights="free")]  # fmt: skip


@dataclass(frozen=True)
class Down:
    """The first number of the embedding, as low as can be."""

    def prepare(self, probe, batch, generator):
        return lambda z: z[:, 0]


def slow_sample(image, x, y, padding):
    """One number of each channel at column x and row y, bilinear, by four pixels."""
    height, width = image.shape[1:]
    if padding == "border":
        x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
    left, top, total = math.floor(x), math.floor(y), torch.zeros_like(image[:, 0, 0])
    for column, row in ((left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)):
        weight = (1 - abs(x - column)) * (1 - abs(y - row))
        inside = 0 <= column < width and 0 <= row < height
        total += weight * image[:, row, column] if inside else 0
    return total


@settings(max_examples=15)
@given(
    st.sampled_from([(5, 7), (6, 6), (1, 4), (9, 2)]),
    st.floats(-180, 180),
    st.floats(-0.5, 0.5),
    st.floats(-0.5, 0.5),
    st.sampled_from(["zeros", "border"]),
)
def test_a_turned_and_shifted_picture_is_that_of_the_loop_and_of_torchvision(
    size, degrees, right, down, padding
):
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(2, 3, *size, dtype=torch.float64, generator=generator)
    found = moved(images, degrees, (right, down), padding)
    height, width = size
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    middle = ((width - 1) / 2, (height - 1) / 2)
    for n, row, column in [(0, 0, 0), (1, height - 1, width - 1), (0, height // 2, width // 3)]:
        x, y = column - middle[0] - right * width, row - middle[1] - down * height
        place = (cos * x + sin * y + middle[0], cos * y - sin * x + middle[1])
        expected = slow_sample(images[n], *place, padding)
        assert torch.allclose(found[n, :, row, column], expected, atol=1e-9)
    if padding == "zeros":
        twin = vision.affine(images, degrees, [right * width, down * height], 1.0, [0.0, 0.0],
                             InterpolationMode.BILINEAR)  # fmt: skip
        assert torch.allclose(found, twin, atol=1e-9)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_quarter_turns_of_a_square_move_every_pixel_and_change_none(make, quarters):
    images = make(2, torch.float64).images
    turned = torch.rot90(images, -quarters, (2, 3))
    assert torch.allclose(moved(images, 90.0 * quarters, (0, 0)), turned, atol=1e-9)


def test_a_shift_by_whole_pixels_is_a_roll_with_black_or_the_border_coming_in(make):
    images = make(2, torch.float64).images
    for padding, edge in (
        ("zeros", torch.zeros_like(images[..., :1])),
        ("border", images[..., :1]),
    ):
        rolled = torch.cat([edge, edge, images[..., :-2]], 3)
        assert torch.allclose(moved(images, 0, (2 / 8, 0), padding), rolled, atol=1e-9)
    below = moved(images, 0, (0, 3 / 8))
    assert torch.allclose(below[:, :, 3:], images[:, :, :-3], atol=1e-9)
    assert below[:, :, :3].abs().max() < 1e-9


@pytest.mark.parametrize("size", [(8, 8), (7, 13), (1, 1), (2, 1), (64, 64)])
def test_no_flow_changes_nothing(size, gen):
    for dtype, rounding in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
        images = torch.rand(2, 3, *size, dtype=dtype, generator=gen())
        assert (warp(images, torch.zeros(2, 2, *size, dtype=dtype)) - images).abs().max() < rounding


@settings(max_examples=10)
@given(st.integers(0, 100), st.sampled_from([(4, 5), (1, 3), (6, 6)]), st.floats(0, 4))
def test_a_warped_picture_is_that_of_the_loop(seed, size, length):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(2, 2, *size, dtype=torch.float64, generator=generator)
    flow = length * torch.randn(2, 2, *size, dtype=torch.float64, generator=generator)
    found = warp(images, flow)
    for n in range(2):
        for row in range(size[0]):
            for column in range(size[1]):
                right, down = flow[n, :, row, column].tolist()
                expected = slow_sample(images[n], column + right, row + down, "border")
                assert torch.allclose(found[n, :, row, column], expected, atol=1e-9)


@settings(max_examples=10)
@given(st.integers(0, 100), st.sampled_from([(4, 5), (1, 3), (1, 1), (6, 2)]))
def test_the_variation_of_a_flow_is_that_of_the_loop(seed, size):
    generator = torch.Generator().manual_seed(seed)
    flow = torch.randn(2, 2, *size, dtype=torch.float64, generator=generator)
    for n in range(2):
        total = 0.0
        for r in range(size[0]):
            for c in range(size[1]):
                for row, column in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    if 0 <= row < size[0] and 0 <= column < size[1]:
                        total += (flow[n, :, r, c] - flow[n, :, row, column]).norm().item()
        assert variation(flow)[n].item() == pytest.approx(total / (size[0] * size[1]), abs=1e-12)


def test_the_variation_of_a_smooth_flow_has_gradient_zero():
    """PITFALLS 7: no NaN at a distance of zero."""
    flow = torch.ones(1, 2, 4, 4).requires_grad_()
    (grad,) = torch.autograd.grad(variation(flow).sum(), flow)
    assert torch.equal(grad, torch.zeros_like(flow))


def slow_stadv(embed, batch, aims, solver):
    """Picture by picture, one graph from the flow to the loss; all iterates with their losses."""
    for x, aim in zip(batch.images, aims, strict=True):
        flow = torch.zeros(1, 2, *x.shape[1:], dtype=x.dtype, requires_grad=True)
        adam, seen = torch.optim.Adam([flow], solver.lr), []
        for step in range(solver.steps + 1):
            adv = warp(x[None], flow)
            loss = (embed(adv) - aim).square().sum()
            seen.append((loss.item(), adv.detach()[0]))
            if step < solver.steps:
                adam.zero_grad()
                (loss + solver.tau * variation(flow)[0]).backward()
                adam.step()
        yield min(seen, key=lambda pair: pair[0])


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_flows_are_those_of_one_graph_from_flow_to_loss(net, make, gen, tau):
    net, batch = net.double(), make(4, torch.float64)
    batch = replace(batch, images=batch.images * 0.9 + 0.05)
    aims = net(batch.images[[1, 2, 3, 0]]).detach()

    class Goal:
        def prepare(self, probe, batch, generator):
            return lambda z: (z - aims).square().sum(1)

    solver = Stadv(6, tau=tau)
    found = Attack(Goal(), solver, BOX)(net, batch, generator=gen())
    for n, (loss, image) in enumerate(slow_stadv(net, batch, aims, solver)):
        assert found.loss[n].item() == pytest.approx(loss, abs=1e-7)
        assert torch.allclose(found.images[n], image, atol=1e-6)


def test_a_costlier_flow_is_smoother(net, batch, gen):
    def spread(tau):
        found = Attack(Stax(), Stadv(15, tau=tau), BOX)(net, batch, generator=gen())
        return found.l2.mean().item(), found.loss.mean().item()

    (free, strong), (dear, weak) = spread(0.0), spread(3.0)
    assert dear < free and weak > strong


def test_the_grid_holds_both_ends_and_never_the_picture_itself():
    grid = list(Rotation(30, 5, 0.1, 3).grid())
    assert len(grid) == 5 * 3 * 3 - 1 and (0, 0, 0) not in grid
    assert {angle for angle, _, _ in grid} == {-30, -15, 0, 15, 30}
    assert {right for _, right, _ in grid} == {down for *_, down in grid} == {-0.1, 0, 0.1}
    assert len(list(Rotation(30, 4, 0.1, 2).grid())) == 16
    assert list(Rotation(angles=1, steps=1).grid()) == list(Rotation(0, 9, 0, 9).grid()) == []
    assert len(list(Rotation().grid())) + 1 == 31 * 5 * 5


def test_rotation_finds_each_picture_s_worst_of_the_grid(net, batch, gen):
    solver = Rotation(20, 3, 0.125, 3)
    found = Attack(Stax(), solver, BOX)(net, batch, generator=gen(3))
    goal = Stax().prepare(Probe(net), batch, gen(3))
    tried = [batch.images, *(moved(batch.images, d, s) for d, *s in solver.grid())]
    losses = torch.stack([goal(net(images)).detach() for images in tried])
    assert torch.allclose(found.loss, losses.min(0).values, atol=1e-6)
    for n, best in enumerate(losses.argmin(0).tolist()):
        assert torch.equal(found.images[n], tried[best][n])
    assert found.forwards == 8 * 27 and found.backwards == 0


@settings(max_examples=10)
@given(st.integers(0, 100), st.sampled_from([1, 2, 3]), st.floats(0, 1))
def test_a_mix_of_channels_is_that_of_the_loop(seed, channels, strength):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(2, channels, 2, 3, dtype=torch.float64, generator=generator)
    for weights in ("convex", "free"):
        drawn = Colour(strength=strength, weights=weights)._draw(channels, generator)
        found = mix(images, drawn)
        for c in range(channels):
            total = sum(drawn[c, j] * images[:, j] for j in range(channels))
            assert torch.allclose(found[:, c], total.clamp(0, 1), atol=1e-12)
        if weights == "convex":
            assert (drawn >= 0).all() and torch.allclose(drawn.sum(1), torch.ones(()).double())
            assert (found <= images.amax(1, keepdim=True) + 1e-12).all()
            assert (found >= images.amin(1, keepdim=True) - 1e-12).all()


def test_convex_weights_are_drawn_evenly_and_free_ones_keep_the_mean_brightness(gen):
    """Evenly from the simplex: each has the mean 1/3 and the variance 1/18."""
    generator = gen()
    for weights, variance in (("convex", 1 / 18), ("free", 1 / 27)):
        drawn = torch.stack([Colour(weights=weights)._draw(3, generator) for _ in range(1000)])
        assert torch.allclose(drawn.mean(0), torch.full((3, 3), 1 / 3).double(), atol=0.03)
        assert torch.allclose(drawn.var(0), torch.full((3, 3), variance).double(), rtol=0.2)


def test_colour_finds_each_picture_s_worst_of_the_mixes(net, batch, gen):
    found = Attack(Down(), Colour(5), BOX)(net, batch, generator=gen(3))
    generator, goal = gen(3), Down().prepare(Probe(net), batch, gen())
    drawn = [Colour()._draw(3, generator).float() for _ in range(5)]
    tried = [batch.images, *(mix(batch.images, w) for w in drawn)]
    losses = torch.stack([goal(net(images)).detach() for images in tried])
    assert torch.allclose(found.loss, losses.min(0).values, atol=1e-6)
    assert found.forwards == 8 * 6 and found.backwards == 0


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 8])
def test_never_worse_than_clean_and_always_inside_the_box(net, make, gen, solver, dtype, n):
    net, batch = net.to(dtype), make(n, dtype)
    goal = Down() if n == 1 else Stax()  # stax needs another class in the batch
    found = Attack(goal, solver, BOX)(net, batch, generator=gen())
    loss = goal.prepare(Probe(net), batch, gen())
    clean, after = loss(net(batch.images)), loss(net(found.images))
    assert (found.loss <= clean + 1e-6).all() and torch.allclose(found.loss, after, atol=1e-5)
    assert found.images.min() >= 0 and found.images.max() <= 1
    assert found.images.dtype == dtype and not found.images.requires_grad
    assert n == 1 or found.loss.mean() < clean.mean()
    assert found.zero_gradients == 0


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_no_picture_depends_on_its_batch_mates(net, make, gen, solver):
    net, batch = net.double(), make(6, torch.float64)
    whole = Attack(Down(), solver, BOX)(net, batch, generator=gen(1))
    for n in range(6):
        one = Attack(Down(), solver, BOX)(net, Batch(batch.images[n : n + 1]), generator=gen(1))
        assert torch.allclose(one.images[0], whole.images[n], atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_only_stadv_asks_for_a_gradient(net, batch, gen, solver):
    def blind(images):
        with torch.no_grad():
            return net(images)

    attack = Attack(Stax(), solver, BOX)
    if getattr(solver, "gradient_free", False):
        assert attack(blind, batch, generator=gen()).backwards == 0
        return
    with pytest.raises(UserError, match="no gradient"):
        attack(blind, batch, generator=gen())
    forwards = 8 * (solver.steps + 1 + (solver.start > 0))
    assert attack(net, batch, generator=gen()).forwards == forwards


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_ball_is_refused_in_a_sentence(net, batch, gen, solver, norm):
    with pytest.raises(UserError, match="write norm=none") as said:
        Attack(Down(), solver, Threat(0.1, norm))(net, batch, generator=gen())
    assert "\n" not in str(said.value) and norm in str(said.value)


def test_the_draws_follow_the_generator_and_pictures_under_autocast_stay_float32(net, batch, gen):
    for solver in (Colour(3), Stadv(2, start=0.5)):
        first, again, other = (
            Attack(Stax(), solver, BOX)(net, batch, generator=gen(seed)).images
            for seed in (1, 1, 2)
        )
        assert torch.equal(first, again) and not torch.equal(first, other)
    for solver in SOLVERS:
        with torch.autocast("cpu", torch.bfloat16):
            found = Attack(Stax(), solver, BOX)(net, batch, generator=gen())
        assert found.images.dtype == torch.float32


def test_nothing_to_do_returns_the_very_same_pictures(net, batch, gen):
    for solver in (Stadv(0), Colour(0), Colour(strength=0)):
        assert Attack(Stax(), solver, BOX)(net, batch, generator=gen()).images is batch.images
    still = Attack(Stax(), Rotation(angles=1, steps=1), BOX)(net, batch, generator=gen())
    assert still.images is batch.images


def test_grey_pictures_have_no_channels_to_mix(gen):
    grey = Batch(torch.rand(2, 1, 4, 4, generator=gen()))

    def embed(images):
        return images.flatten(1)

    with pytest.raises(UserError, match="weights=free"):
        Attack(Down(), Colour(), BOX)(embed, grey, generator=gen())
    found = Attack(Down(), Colour(4, weights="free"), BOX)(embed, grey, generator=gen())
    assert found.linf.min() > 0


def test_flee_needs_a_flow_at_the_start(net, batch, gen):
    with pytest.raises(UserError, match="random start"):
        Attack(Flee(), Stadv(), BOX)
    found = Attack(Flee(), Stadv(5, start=0.3), BOX)(net, batch, generator=gen())
    assert (found.loss < 0).all()


@pytest.mark.parametrize(
    ("spec", "solver"),
    [
        ("rotation:15,angles=7,steps=3", Rotation(15, 7, steps=3)),
        ("colour:20,weights=free", Colour(20, weights="free")),
        ("stadv:steps=7,tau=.5", Stadv(7, 0.5)),
        ("stax:solver=rotation", Rotation()),
        ("stax:solver=stadv(steps=3)", Stadv(3)),
    ],
)
def test_a_solver_that_needs_no_ball_is_composed_without_one(spec, solver):
    assert build(spec) == Attack(Stax(), solver, BOX)
    assert build("misrank", solver=solver).threat == BOX
    with pytest.raises(UserError, match="keeps to no linf ball: write norm=none"):
        build(f"{spec},norm=linf")
    assert build("stax", solver=pgd()).threat == Threat()


@pytest.mark.parametrize("name", ["rotation", "colour", "stadv", "prototype"])
def test_every_parameter_is_described(name):
    for kind in ("attack", "goal" if name == "prototype" else "solver"):
        shown = dmltk.describe(kind, name)
        assert shown.source and all(parameter.meaning for parameter in shown.parameters)
    norm = next(p for p in dmltk.describe("attack", name).parameters if p.name == "norm")
    assert norm.default == ("linf" if name == "prototype" else "none")


@pytest.mark.parametrize("spec", ["rotation:angles=0", "rotation:degrees=200", "rotation:shift=2",
                                  "colour:-1", "colour:strength=2", "stadv:steps=-1",
                                  "stadv:lr=0", "stadv:tau=-1"])  # fmt: skip
def test_values_out_of_range_are_refused(spec):
    with pytest.raises(UserError):
        build(spec)
    with pytest.raises(UserError):
        Rotation(steps=0)
    with pytest.raises(UserError):
        Colour(strength=-1)
    with pytest.raises(UserError):
        Stadv(-1)
