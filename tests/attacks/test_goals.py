from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dmltk import Batch, Reference, UserError
from dmltk.attacks import Attack, Flee, Misrank, Mtax, Probe, Stax, Threat, Tma, bim, pgd
from dmltk.attacks.targets import draw
from dmltk.evaluation.metrics import first_hits


def brute(z, pool, rows, power):
    """The mean over targets of a distance to a power, number by number."""
    total = torch.zeros(len(z), dtype=z.dtype)
    for i, picked in enumerate(rows):
        for row in picked:
            square = sum(
                (a - b) ** 2 for a, b in zip(z[i].tolist(), pool[row].tolist(), strict=True)
            )
            total[i] += square if power == 2 else square**0.5
    return total / rows.shape[1]


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("targets", [1, 2, 3])
@pytest.mark.parametrize("source", ["batch", "reference"])
def test_the_loss_is_the_mean_over_the_targets(net, make, gen, power, targets, source):
    net, batch = net.double(), make(8, torch.float64)
    far = make(20, torch.float64, seed=3, classes=5)
    batch = replace(batch, reference=Reference(net(far.images).detach(), far.labels))
    goal = Mtax(targets, power, source)
    loss = goal.prepare(Probe(net), batch, gen(2))
    own = source == "batch"
    rows = draw(batch.labels, batch.labels if own else far.labels, targets, gen(2))
    pool = net(batch.images) if own else batch.reference.embeddings
    z = torch.randn(8, 6, dtype=torch.float64, generator=gen(9))
    assert torch.allclose(loss(z), brute(z, pool, rows, power))


def test_squared_distances_to_targets_have_the_gradient_of_the_one_to_their_mean(net, batch, gen):
    """Sum_t |z - z_t|^2 / T = |z - mean|^2 + a constant: mtax costs what stax costs."""
    loss = Mtax(3).prepare(Probe(net), batch, gen())
    rows = draw(batch.labels, batch.labels, 3, gen())
    z = net(batch.images).detach().requires_grad_()
    (grad,) = torch.autograd.grad(loss(z).sum(), z)
    assert torch.allclose(grad, 2 * (z - z[rows].mean(1)), atol=1e-6)


def test_stax_is_mtax_with_one_target(net, batch, gen):
    z = net(batch.images)
    single, multi = (g.prepare(Probe(net), batch, gen())(z) for g in (Stax(), Mtax(1)))
    assert torch.equal(single, multi)
    assert Stax().targets == 1


def test_the_distance_to_a_target_that_is_reached_has_gradient_zero(net, batch, gen):
    """PITFALLS 7: NaN gradient of a distance at zero."""
    loss = Mtax(1, power=1).prepare(Probe(net), batch, gen())
    rows = draw(batch.labels, batch.labels, 1, gen())[:, 0]
    z = net(batch.images)[rows].detach().requires_grad_()
    (grad,) = torch.autograd.grad(loss(z).sum(), z)
    assert grad.abs().max() == 0


def test_flee_is_the_negative_squared_shift(net, batch, gen):
    loss = Flee().prepare(Probe(net), batch, gen())
    z = torch.randn(8, 6, generator=gen())
    assert torch.allclose(loss(z), -((z - net(batch.images)).norm(dim=1) ** 2))


def test_permutation_aims_at_permutations_of_the_batch_whatever_the_labels(net, batch, gen):
    bare = Batch(batch.images)
    aims = Mtax(4, pick="permutation")._embeddings(Probe(net), bare, gen())
    z = net(batch.images)
    assert aims.shape == (8, 4, 6)
    for t in range(4):
        rows = [(z == aim).all(1).nonzero().item() for aim in aims[:, t]]
        assert sorted(rows) == list(range(8))


@pytest.mark.parametrize("source", ["batch", "reference"])
@pytest.mark.parametrize("targets", [1, 2, 3])
def test_nearest_aims_at_the_nearest_centres_of_other_classes(net, make, gen, targets, source):
    net, batch = net.double(), make(8, torch.float64)
    far = make(20, torch.float64, seed=3, classes=5)
    batch = replace(batch, reference=Reference(net(far.images).detach(), far.labels + 1))
    z = net(batch.images).detach()
    pool, labels = (z, batch.labels) if source == "batch" else (
        batch.reference.embeddings, batch.reference.labels)  # fmt: skip
    aims = Mtax(targets, targets_from=source, pick="nearest")._embeddings(Probe(net), batch, gen())
    assert aims.shape == (8, targets, 6)
    for i, label in enumerate(batch.labels.tolist()):
        centres = [pool[labels == c].mean(0) for c in set(labels.tolist()) - {label}]
        ordered = sorted(centres, key=lambda centre: (centre - z[i]).norm().item())
        assert torch.allclose(aims[i], torch.stack(ordered[:targets]))


def test_nearest_centres_repeat_nearest_first_where_there_are_too_few(net, make, gen):
    """PITFALLS 13: too few classes."""
    goal = Mtax(5, pick="nearest")
    with pytest.warns(UserWarning, match="only 2 other"):
        aims = goal._embeddings(Probe(net), make(6, classes=3), gen())
    assert torch.equal(aims[:, :2], aims[:, 2:4]) and torch.equal(aims[:, 4], aims[:, 0])
    with pytest.raises(UserError, match="no other class"):
        goal._embeddings(Probe(net), make(6, classes=1), gen())


@pytest.mark.parametrize("pick", ["random", "nearest", "permutation"])
def test_tma_equals_stax_under_sign_steps_and_unit_embeddings(net, make, gen, pick):
    net, batch = net.double(), make(8, torch.float64)
    solver = pgd(steps=4, start=0.01)
    cosine, squared = (Attack(goal(pick=pick), solver)(net, batch, generator=gen())
                       for goal in (Tma, Stax))  # fmt: skip
    assert torch.equal(cosine.images, squared.images)
    if pick != "nearest":  # a centre is shorter than one
        assert torch.allclose(2 * cosine.loss, squared.loss)


def test_tma_is_one_minus_the_cosine_whatever_the_lengths(net, batch, gen):
    loss = Tma().prepare(Probe(net), batch, gen())
    rows = draw(batch.labels, batch.labels, 1, gen())[:, 0]
    z, aims = 3 * torch.randn(8, 6, generator=gen()), net(batch.images)[rows]
    slow = [1 - (a @ b).item() / (a.norm() * b.norm()).item() for a, b in zip(z, aims, strict=True)]
    assert loss(z).tolist() == pytest.approx(slow, abs=1e-5)


def gallery(net, make, n: int, rows: int = 40, labels=None) -> Batch:
    """A batch of n pictures that are the first rows of their reference."""
    whole = make(rows, torch.float64, seed=4, classes=5)
    labels = whole.labels if labels is None else labels
    reference = Reference(net(whole.images).detach(), labels)
    return Batch(whole.images[:n], labels[:n], torch.arange(n), reference)


def margins(z, batch: Batch) -> list[float]:
    """Misrank's loss by looking at every row."""
    found, whole = [], batch.reference
    for i in range(len(z)):
        other, same = float("inf"), float("inf")
        for row in range(len(whole.labels)):
            distance = (z[i] - whole.embeddings[row]).norm().item()
            if whole.labels[row] != batch.labels[i]:
                other = min(other, distance)
            elif row != batch.index[i]:
                same = min(same, distance)
        found.append(other - (0 if same == float("inf") else same))
    return found


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("rows", [40, 99])
def test_misrank_is_the_margin_between_the_nearest_other_and_the_nearest_same(
    net, make, gen, n, rows
):
    """PITFALLS 21: a batch of one, a gallery under a hundred, self by index."""
    batch = gallery(net.double(), make, n, rows)
    loss = Misrank().prepare(Probe(net), batch, gen())
    for z in (net(batch.images).detach(), torch.randn(n, 6, dtype=torch.float64, generator=gen())):
        assert loss(z).tolist() == pytest.approx(margins(z, batch))


def test_below_a_margin_of_zero_the_first_rank_is_lost(net, make, gen):
    batch = gallery(net.double(), make, 40)
    found = Attack(Misrank(), pgd(steps=5), Threat(0.05))(net, batch, generator=gen())
    whole = batch.reference
    lost = []
    for images in (batch.images, found.images):
        z = net(images).detach()
        loss = Misrank().prepare(Probe(net), batch, gen())(z)
        ranks = first_hits(z, whole.embeddings, batch.labels, whole.labels, batch.index)
        assert torch.equal(loss < 0, ranks != 1)
        lost.append(int((loss < 0).sum()))
    assert torch.equal(found.loss, loss) and lost[1] > lost[0]


def test_misrank_leaves_out_self_by_index_and_not_by_distance(net, make, gen):
    """PITFALLS 21: a duplicate at distance zero is another item; -1 is no row at all."""
    batch = gallery(net.double(), make, 1)
    z = batch.reference.embeddings[:1]
    twin = batch.reference.embeddings.clone()
    twin[5] = twin[0]  # row 5 is of class 0 too
    twin = replace(batch, reference=replace(batch.reference, embeddings=twin))
    outside = replace(batch, index=torch.tensor([-1]))
    plain, double, absent = (
        Misrank().prepare(Probe(net), b, gen())(z).item() for b in (batch, twin, outside)
    )
    assert double == absent > plain


def test_a_picture_alone_in_its_class_goes_to_the_nearest_other(net, make, gen):
    labels = torch.arange(40) % 5
    labels[0] = 9
    batch = gallery(net.double(), make, 3, labels=labels)
    z = batch.reference.embeddings[:3].requires_grad_()
    loss = Misrank().prepare(Probe(net), batch, gen())(z)
    assert loss.tolist() == pytest.approx(margins(z.detach(), batch))
    assert torch.isfinite(torch.autograd.grad(loss.sum(), z)[0]).all()


@pytest.mark.parametrize("every", [1, 3])
def test_the_gradient_follows_the_nearest_of_every_so_many_steps(net, make, gen, every):
    batch = gallery(net.double(), make, 2)
    loss, pool = Misrank(every).prepare(Probe(net), batch, gen()), batch.reference.embeddings
    followed = None
    for step in range(7):
        z = torch.randn(2, 6, dtype=torch.float64, generator=gen(step)).requires_grad_()
        value = loss(z)
        assert value.tolist() == pytest.approx(margins(z.detach(), batch))
        if step % every == 0:
            distance = (z.detach()[:, None] - pool).norm(dim=2)
            same = batch.labels[:, None] == batch.reference.labels
            self_ = torch.arange(40) == batch.index[:, None]
            followed = (distance.masked_fill(same, 99).argmin(1),
                        distance.masked_fill(~same | self_, 99).argmin(1))  # fmt: skip
        other, mate = (z - pool[followed[0]], z - pool[followed[1]])
        expected = torch.nn.functional.normalize(other) - torch.nn.functional.normalize(mate)
        assert torch.allclose(torch.autograd.grad(value.sum(), z)[0], expected)


def test_what_misrank_lacks_is_said(net, make, gen):
    """PITFALLS 13: checked before running, with the reason."""
    batch = gallery(net.double(), make, 4)
    one = replace(batch.reference, labels=torch.zeros(40, dtype=torch.long))
    for given, named in [
        (replace(batch, labels=None), "needs labels"),
        (replace(batch, reference=None), "give the batch one"),
        (replace(batch, index=None), "by index"),
        (replace(batch, reference=one), "no other class"),
    ]:
        with pytest.raises(UserError, match=named):
            Attack(Misrank(), pgd())(net, given, generator=gen())


def test_targets_are_looked_at_once_and_without_a_graph(net, batch, gen):
    probe = Probe(net)
    aims = Stax()._embeddings(probe, batch, gen())
    assert net.seen == 8 and not aims.requires_grad


def test_what_a_goal_lacks_is_said(net, batch, gen):
    """PITFALLS 13: checked before running, with the reason."""
    bare = Batch(batch.images)
    one = replace(batch, labels=torch.zeros(8, dtype=torch.long))
    for goal, given, named in [
        (Stax(), bare, "need labels"),
        (Stax(targets_from="reference"), batch, "batch with a reference"),
        (Stax(targets_from="reference"), bare, "need labels"),
        (Stax(), one, "no other class"),
        (Stax(pick="permutation"), Batch(batch.images[:1]), "single picture"),
    ]:
        with pytest.raises(UserError, match=named):
            Attack(goal, bim())(net, given, generator=gen())
    assert net.seen == 0
    with pytest.raises(UserError, match="targets_from=batch"):
        Mtax(pick="permutation", targets_from="reference")
    with pytest.raises(UserError, match="at least one"):
        Mtax(0)
