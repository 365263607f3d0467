"""Solvers that ask for losses only, against slow twins with the same draws and known laws."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
import torchattacks
from dmltk import Batch, Reference, UserError
from dmltk.attacks import Attack, Flee, Nes, Noise, Probe, Square, Stax, Threat, bim, build, pgd
from dmltk.attacks.blackbox import antithetic, square_side
from dmltk.attacks.solvers import Best
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

EPS = 8 / 255
SOLVERS = [Nes(13, population=4), Square(9), Noise(3), Noise(3, "sign")]
THREATS = [Threat(), Threat(0.5, "l2"), Threat(norm="none"), Threat((0.02, 0.0, 0.1))]


@dataclass(frozen=True)
class Aim:
    """A goal that asks for no pass: nearness to a point of its own for each picture."""

    def prepare(self, probe, batch, generator):
        return lambda z: (z - aims(len(z), z.shape[1], z.dtype)).square().sum(1)


def aims(n, dim, dtype):
    return torch.linspace(-1, 1, n * dim, dtype=dtype).sin().view(n, dim)


class Model:
    """A smooth embedding without a gradient; counts the pictures it is given."""

    def __init__(self, pixels, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(pixels, 5, dtype=torch.float64, generator=generator)
        self.seen = 0

    def __call__(self, images):
        self.seen += len(images)
        return (images.double().flatten(1) @ self.weight).sin().detach()


def drawn(n, shape, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, *shape, dtype=dtype, generator=generator) * 1.4 - 0.2).clamp(0, 1)


def directions(count, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, *shape, dtype=torch.float64, generator=generator))


# --- nes


def test_the_estimate_nears_the_gradient_of_a_linear_loss():
    """cos^2 is about M / (M + d) with M directions in d dimensions."""
    weight = torch.randn(48, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images = torch.full((2, 3, 4, 4), 0.5, dtype=torch.float64)
    for count in (100, 1500):
        grad = antithetic(lambda x: x.flatten(1) @ weight, images,
                          directions(count, (3, 4, 4), 1), 1e-3)  # fmt: skip
        cosine = torch.cosine_similarity(grad.flatten(1), weight[None])
        assert cosine.tolist() == pytest.approx([(count / (count + 48)) ** 0.5] * 2, abs=0.03)


def test_the_estimate_is_unbiased_with_the_known_variance():
    """(w.u) u has mean w and variance |w|^2 + w_i^2 in its i-th entry."""
    weight = torch.randn(48, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images = torch.full((1000, 3, 4, 4), 0.5, dtype=torch.float64)
    each = antithetic(lambda x: x.flatten(1) @ weight, images,
                      directions(10, (1000, 3, 4, 4), 1), 1e-3).flatten(1)  # fmt: skip
    deviation = ((weight.square().sum() + weight.square()) / 10).sqrt()
    z = (each.mean(0) - weight) / deviation * 1000**0.5
    assert stats.kstest(z, "norm").pvalue > 0.01 and z.abs().max() < 4
    assert (each.std(0) / deviation).mean().item() == pytest.approx(1, abs=0.03)


def test_pairs_cancel_the_curvature_of_a_quadratic_loss():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(48, 48, dtype=torch.float64, generator=generator)
    images = 0.3 + 0.4 * torch.rand(3, 3, 4, 4, dtype=torch.float64, generator=generator)
    us = directions(7, (3, 4, 4), 1)
    found = antithetic(lambda x: (x.flatten(1) @ root).square().sum(1), images, us, 0.02)
    grad = 2 * images.flatten(1) @ root @ root.T
    expected = sum((grad @ u.flatten())[:, None] * u.flatten() for u in us) / 7
    assert torch.allclose(found.flatten(1), expected, rtol=1e-9)


def test_at_an_edge_of_the_box_the_estimate_is_one_half():
    """Only pictures are asked about: on the way out a loss is taken at the edge."""
    images = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64).view(1, 1, 1, 3)
    us = [row.view(1, 1, 3) * sign for row in torch.eye(3, dtype=torch.float64) for sign in (1, -1)]
    found = antithetic(lambda x: 3 * x.flatten(1).sum(1), images, us, 1e-3)
    assert found.flatten().tolist() == pytest.approx([0.5, 1.0, 0.5])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.sampled_from([2, 6]), st.integers(0, 5), st.sampled_from(THREATS[:3]),
       st.sampled_from([None, 0.0, 0.01]), st.sampled_from([None, 2, 3]),
       st.integers(0, 99))  # fmt: skip
def test_nes_is_the_loop_written_out(steps, population, spare, threat, start, grid, seed):
    images, model = drawn(3, (3, 4, 6), seed), Model(72)
    queries = 1 + steps * (population + 1) + min(spare, population)
    solver = Nes(queries, population, sigma=0.01, start=start, grid=grid)
    assert solver.steps == steps
    found = Attack(Aim(), solver, threat)(
        model, Batch(images), generator=torch.Generator().manual_seed(seed)
    )
    generator = torch.Generator().manual_seed(seed)
    radius = threat.largest if start is None else start
    starts = threat.random(images, radius, generator) if radius else images
    noise = []
    for _ in range(steps * population // 2):
        u = torch.randn(3, *((4, 6) if grid is None else (grid, grid)), dtype=torch.float64,
                        generator=generator)  # fmt: skip
        if grid is not None:
            rows = [int((i + 0.5) * grid / 4) for i in range(4)]
            u = u[:, rows][:, :, [int((j + 0.5) * grid / 6) for j in range(6)]]
        noise.append(u)
    for i, aim in enumerate(aims(3, 5, torch.float64)):

        def loss(x, aim=aim):
            return (model(x[None])[0] - aim).square().sum().item()

        x, seen = starts[i], []
        for step in range(steps):
            seen.append((loss(x), x))
            grad = torch.zeros_like(x)
            for u in noise[step * population // 2 : (step + 1) * population // 2]:
                up, down = ((x + s * 0.01 * u).clamp(0, 1) for s in (1, -1))
                grad += (loss(up) - loss(down)) * u / (0.01 * population)
            unit = grad / grad.norm() if threat.norm == "l2" else grad.sign()
            x = threat.project((x - 2.5 * threat.largest / steps * unit)[None],
                               images[i : i + 1])[0]  # fmt: skip
        seen.append((loss(x), x))
        best = min(seen, key=lambda pair: pair[0])
        assert found.loss[i].item() == pytest.approx(best[0], abs=1e-12)
        assert torch.allclose(found.images[i], best[1], atol=1e-9)
        assert found.start_loss[i].item() == pytest.approx(seen[0][0])


def test_a_population_or_a_budget_that_makes_no_step_is_refused():
    with pytest.raises(UserError, match="pairs"):
        Nes(population=5)
    with pytest.raises(UserError, match="give 52 or more"):
        Nes(51)
    with pytest.raises(UserError, match="population"):
        build("nes:population=3")
    assert Nes(52).steps == 1 and Nes(0).steps == 0


def test_flee_is_estimated_from_a_random_start_only():
    assert Attack(Flee(), Nes())
    with pytest.raises(UserError, match="random start"):
        Attack(Flee(), Nes(start=0))


# --- square


def paper_share(p, it):
    """Piecewise constant, for a budget of 10 000."""
    for end, part in ((10, 1), (50, 2), (200, 4), (500, 8), (1000, 16), (2000, 32), (4000, 64),
                      (6000, 128), (8000, 256)):  # fmt: skip
        if it <= end:
            return p / part
    return p / 512


@given(st.floats(0.01, 1), st.integers(0, 9999), st.sampled_from([(28, 28), (224, 224), (5, 40)]))
def test_squares_shrink_as_in_the_paper(p, spent, shape):
    height, width = shape
    wanted = max(1, round((paper_share(p, spent) * height * width) ** 0.5))
    assert square_side(p, spent, height, width) == min(wanted, height, width)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 25), st.sampled_from([0.05, 0.8, 1.0]),
       st.sampled_from([Threat(0.1), Threat(norm="none"), Threat((0.0, 0.02, 0.3))]),
       st.sampled_from([(3, 4, 4), (3, 5, 3), (3, 1, 1)]), st.integers(0, 99))  # fmt: skip
def test_square_is_the_loop_written_out(queries, p, threat, shape, seed):
    images, model = drawn(3, shape, seed), Model(shape[0] * shape[1] * shape[2])
    found = Attack(Aim(), Square(queries, p), threat)(
        model, Batch(images), generator=torch.Generator().manual_seed(seed)
    )
    assert model.seen == found.forwards == 3 * queries
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = shape
    stripes = torch.randint(2, (channels, 1, width), generator=generator)
    squares = []
    for i in range(queries - 1):
        side = max(1, round((paper_share(p, i * 10000 // queries) * height * width) ** 0.5))
        side = min(side, height, width)
        top = int(torch.randint(height - side + 1, (), generator=generator))
        left = int(torch.randint(width - side + 1, (), generator=generator))
        squares.append((side, top, left, torch.randint(2, (channels, 1, 1), generator=generator)))
    radii = {"linf": threat.eps, "none": 1.0}[threat.norm]
    radii = radii if isinstance(radii, tuple) else (radii,) * 3
    for i, aim in enumerate(aims(3, 5, torch.float64)):

        def end(c, y, x, up, i=i):
            return min(max(images[i, c, y, x].item() + (radii[c] if up else -radii[c]), 0), 1)

        def loss(x, aim=aim):
            return (model(x[None])[0] - aim).square().sum().item()

        kept = torch.zeros(shape, dtype=torch.float64)
        for c, y, x in itertools.product(*map(range, shape)):
            kept[c, y, x] = end(c, y, x, stripes[c, 0, x])
        lowest = loss(kept)
        assert found.start_loss[i].item() == pytest.approx(lowest, abs=1e-12)
        for side, top, left, up in squares:
            tried = kept.clone()
            for c, y, x in itertools.product(range(channels), range(side), range(side)):
                tried[c, top + y, left + x] = end(c, top + y, left + x, up[c, 0, 0])
            if (now := loss(tried)) < lowest:
                lowest, kept = now, tried
        assert found.loss[i].item() == pytest.approx(lowest, abs=1e-12)
        assert torch.allclose(found.images[i], kept, atol=1e-12)


def test_no_loss_rises_on_the_way(monkeypatch, net, batch, gen):
    kept, see = [], Best.see
    monkeypatch.setattr(Best, "see", lambda self, *seen: (see(self, *seen), kept.append(self.loss)))
    Attack(Stax(), Square(60))(net, batch, generator=gen())
    assert len(kept) == 60
    assert all((now <= before).all() for before, now in itertools.pairwise(kept))
    assert (kept[-1] < kept[0]).all()


def test_every_pixel_stays_at_an_end_of_what_is_allowed_to_it(net, batch, gen):
    found = Attack(Stax(), Square(30))(net, batch, generator=gen()).images
    high, low = (Threat().project(batch.images + a, batch.images) for a in (EPS, -EPS))
    assert ((found == high) | (found == low)).all()
    assert torch.allclose(high, (batch.images + EPS).clamp(max=1), atol=1e-7)


def test_square_is_refused_a_euclidean_ball(net, batch, gen):
    with pytest.raises(UserError, match="nes for l2"):
        build("square:norm=l2,eps=1")(net, batch, generator=gen())


def test_square_is_about_as_strong_as_torchattacks(net, batch, gen):
    """Theirs never reaches the last row and column: it is handed a draw that does."""
    aimed, queries = Stax()._embeddings(Probe(net), batch, gen(3))[:, 0], 150

    class Columns(nn.Module):
        """Logits [s, 0]: their margin against label 0 is the goal's loss s."""

        def forward(self, images):
            loss = (net(images) - aimed).square().sum(1)
            return torch.stack([loss, torch.zeros_like(loss)], 1)

    theirs = torchattacks.Square(Columns().eval(), eps=EPS, n_queries=queries, p_init=0.8)
    theirs.init_hyperparam(batch.images)
    theirs.random_int = lambda low, high, shape=(1,): torch.randint(low, high + 1, shape)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        adv = theirs.attack_single_run(batch.images, torch.zeros(8, dtype=torch.long))[1]
    level = (net(adv) - aimed).square().sum(1)
    found = Attack(Stax(), Square(queries))(net, batch, generator=gen(3))
    assert found.loss.mean().item() == pytest.approx(level.mean().item(), rel=0.05)


# --- noise


def test_uniform_noise_fills_the_cube_evenly(gen):
    images = torch.full((50, 3, 5, 5), 0.5, dtype=torch.float64)
    found = Attack(Aim(), Noise(), Threat(0.1))(Model(75), Batch(images), generator=gen())
    change = (found.images - images).flatten() / 0.1
    assert stats.kstest(change, "uniform", (-1, 2)).pvalue > 0.01
    assert found.loss is None and found.start_loss is None and found.forwards == 0


def test_uniform_noise_fills_the_euclidean_ball_evenly(gen):
    """The share of the volume within a radius r of d dimensions is r^d."""
    images = torch.full((2000, 1, 2, 3), 0.5, dtype=torch.float64)
    found = Attack(Aim(), Noise(), Threat(0.3, "l2"))(Model(6), Batch(images), generator=gen())
    assert stats.kstest((found.l2 / 0.3) ** 6, "uniform").pvalue > 0.01
    along = (found.images - images).flatten(1)[:, 2] / found.l2
    assert stats.kstest((along + 1) / 2, "beta", (2.5, 2.5)).pvalue > 0.01


@pytest.mark.parametrize("threat", [Threat(0.1), Threat(0.1, "l2"), Threat((0.05, 0.1, 0.0))])
def test_signs_reach_the_edge_with_every_pixel_equally_far(gen, threat):
    images = torch.full((40, 3, 4, 4), 0.5, dtype=torch.float64)
    found = Attack(Aim(), Noise(draw="sign"), threat)(Model(48), Batch(images), generator=gen())
    change = found.images - images
    far = {"linf": threat.eps, "l2": 0.1 / 48**0.5}[threat.norm]
    far = torch.tensor(far, dtype=torch.float64).expand(3).view(3, 1, 1)
    assert torch.allclose(change.abs(), far.expand_as(change), atol=1e-12)
    ups = int((change[:, 0] > 0).sum())
    assert stats.binomtest(ups, 640).pvalue > 0.01


@pytest.mark.parametrize("draw", ["uniform", "sign"])
def test_each_picture_keeps_its_best_try(net, batch, gen, draw):
    found = Attack(Flee(), Noise(4, draw))(net, batch, generator=gen())
    generator, clean, tries = gen(), net(batch.images), []
    for _ in range(4):
        if draw == "uniform":
            adv = Threat().random(batch.images, EPS, generator)
        else:
            signs = torch.randint(2, batch.images.shape, generator=generator) * 2 - 1
            adv = Threat().project(batch.images + EPS * signs, batch.images)
        tries.append(adv)
    losses = torch.stack([-(net(adv) - clean).square().sum(1) for adv in tries])
    assert torch.allclose(found.loss, losses.amin(0), atol=1e-6)
    assert torch.equal(found.images, torch.stack(tries)[losses.argmin(0), torch.arange(8)])
    assert found.forwards == 5 * 8  # the clean pictures, and four tries


def test_a_single_try_is_restarted_by_its_loss(net, batch, gen):
    """restarts=n of one try is n tries."""
    restarted = Attack(Flee(), Noise(), restarts=3)(net, batch, generator=gen())
    tried = Attack(Flee(), Noise(3))(net, batch, generator=gen())
    assert torch.equal(restarted.images, tried.images)
    assert torch.equal(restarted.loss, tried.loss)


# --- all three


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.sampled_from([None, 2, 4, 10]), st.integers(1, 3))
def test_a_budget_is_never_exceeded(queries, population, n):
    """Square spends all of it, nes all but less than a step."""
    if population and queries:
        queries = max(queries, population + 2)
    solver = Nes(queries, population) if population else Square(queries)
    model, images = Model(12), drawn(n, (3, 2, 2), queries)
    found = Attack(Aim(), solver)(model, Batch(images), generator=torch.Generator())
    assert model.seen == found.forwards <= n * queries and found.backwards == 0
    assert found.forwards >= n * (queries - (population or 0))
    if queries == 0:
        assert found.images is images and found.loss is None
        return
    expected = Aim().prepare(None, None, None)(model(found.images))
    assert torch.allclose(found.loss, expected) and (found.loss <= found.start_loss).all()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SOLVERS), st.sampled_from(THREATS), st.sampled_from([None, 8]),
       st.integers(1, 3), st.sampled_from([(3, 4, 4), (3, 5, 3), (3, 1, 1)]),
       st.sampled_from([torch.float32, torch.float64]), st.integers(0, 99))  # fmt: skip
def test_what_is_found_lies_in_the_ball_and_in_the_box(
    solver, threat, quantize, n, shape, dtype, seed
):
    if isinstance(solver, Square) and threat.norm == "l2":
        return
    threat = replace(threat, quantize=quantize)
    images, generator = drawn(n, shape, seed, dtype), torch.Generator().manual_seed(seed)
    model = Model(shape[0] * shape[1] * shape[2])
    found = Attack(Aim(), solver, threat)(model, Batch(images), generator=generator)
    assert found.images.dtype == dtype and found.images.min() >= 0 and found.images.max() <= 1
    change = found.images - images
    if threat.norm == "l2":
        assert found.l2.max() <= 0.5 * (1 + 1e-5) + 1e-6
    elif threat.norm == "linf":
        radii = torch.tensor(threat.eps).expand(3).view(3, 1, 1)
        assert (change.abs() <= radii + 2e-6).all()
    expected = Aim().prepare(None, None, None)(model(found.images)).to(found.loss.dtype)
    assert torch.allclose(found.loss, expected, atol=1e-5)


@pytest.mark.parametrize("solver", [Nes(31, population=4, start=0), Square(25)])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_picture_is_attacked_alike_whatever_its_batch_mates(net, make, gen, solver, norm):
    if isinstance(solver, Square) and norm == "l2":
        return
    batch, net = make(6, torch.float64, classes=3), net.double()
    whole = make(9, torch.float64, classes=3)
    batch = replace(batch, index=torch.arange(6),
                    reference=Reference(net(whole.images).detach(), whole.labels))  # fmt: skip
    attack = build("misrank", solver=solver, norm=norm, eps=0.05 if norm == "linf" else 0.5)
    found = attack(net, batch, generator=gen()).images
    for rows in ([2], [5, 2], [1, 0, 4]):
        some = replace(batch, images=batch.images[rows], labels=batch.labels[rows],
                       index=batch.index[rows])  # fmt: skip
        alone = attack(net, some, generator=gen()).images
        assert torch.allclose(alone, found[rows], rtol=0, atol=1e-9)


@pytest.mark.parametrize("draw", ["uniform", "sign"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_first_picture_is_drawn_alike_alone_and_in_a_batch(net, make, gen, draw, norm):
    batch = make(4)
    attack = Attack(Flee(), Noise(draw=draw), Threat(0.1, norm))
    found = attack(net, batch, generator=gen()).images
    first = attack(net, Batch(batch.images[:1]), generator=gen()).images
    assert torch.equal(first[0], found[0])


def test_with_queries_losses_come_down_towards_those_of_gradients(net, batch, gen):
    losses = [
        Attack(Stax(), solver)(net, batch, generator=gen()).loss.mean().item()
        for solver in (Noise(150), Noise(150, "sign"), Nes(150), Square(150), pgd(20))
    ]
    assert losses == sorted(losses, reverse=True)


class Remote(nn.Module):
    """A model behind numpy: pictures that require a gradient would not even get there."""

    differentiable = False

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, images):
        self.calls += 1
        return torch.from_numpy(images.numpy().reshape(len(images), -1)[:, :7] ** 2)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("goal", [Flee(), Stax(), Stax(pick="nearest")])
def test_a_model_without_a_gradient_is_attacked(batch, gen, solver, goal):
    remote = Remote()
    views = (remote, remote.forward, lambda x: remote(x))
    found = [Attack(goal, solver)(view, batch, generator=gen()) for view in views]
    assert torch.equal(found[0].images, found[1].images)
    assert torch.equal(found[0].images, found[2].images)
    assert (found[0].loss <= found[0].start_loss).all() and found[0].backwards == 0


@pytest.mark.parametrize("solver", [bim(), pgd(), pgd(steps=0)])
def test_a_solver_that_needs_a_gradient_is_refused_such_a_model_before_any_work(batch, gen, solver):
    remote = Remote()
    for view in (remote, remote.forward, nn.Sequential(remote)):
        with pytest.raises(UserError, match=r"declares that it has no gradient .* nes or square"):
            Attack(Stax(), solver)(view, batch, generator=gen())
    assert remote.calls == 0

    def declared(images):
        raise AssertionError

    declared.differentiable = False
    with pytest.raises(UserError, match="declares"):
        Attack(Stax(), solver)(declared, batch, generator=gen())


def test_no_pass_of_a_solver_without_gradients_keeps_a_graph(net, batch, gen):
    kept = []
    net.register_forward_hook(lambda *args: kept.append(args[2].requires_grad))
    for solver in SOLVERS:
        Attack(Stax(), solver)(net, batch, generator=gen())
    assert kept and not any(kept)


class Gather:
    joint = True

    def prepare(self, probe, batch, generator):
        return lambda z: (z - z.mean(0)).square().sum(1)


class Scalar:
    def prepare(self, probe, batch, generator):
        return lambda z: z.square().sum()


@pytest.mark.parametrize("solver", SOLVERS)
def test_goals_of_a_whole_batch_are_refused(net, batch, gen, solver):
    with pytest.raises(UserError, match="together"):
        Attack(Gather(), solver)
    with pytest.raises(UserError, match="loss per picture"):
        Attack(Scalar(), solver)(net, batch, generator=gen())


def test_a_single_draw_is_refused_a_joint_goal_too():
    with pytest.raises(UserError, match="together"):
        Attack(Gather(), Noise())
    with pytest.raises(UserError, match="tries=0"):
        Noise(0)
