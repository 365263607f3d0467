"""Ranking goals against loops written from the table of their sources."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dmltk import Batch, Reference, UserError, registry
from dmltk.attacks import Attack, Probe, Threat, pgd
from dmltk.attacks.gallery import Gallery
from hypothesis import given
from hypothesis import strategies as st

QUERY = ("qa-up", "qa-down", "sp-qa-up", "sp-qa-down")
CANDIDATE = ("ca-up", "ca-down")
NAMES = (*QUERY, *CANDIDATE, "ltm", "gtm", "gtt")


def ready(make, net, gallery: int, pictures: int = 4, duplicates: bool = False) -> Batch:
    """The first pictures of a gallery, with their rows."""
    far = make(gallery, torch.float64, seed=3, classes=3)
    z = net(far.images).detach()
    if duplicates:
        z[1:] = z[:1]
    n = min(pictures, gallery)
    return Batch(far.images[:n], far.labels[:n], torch.arange(n), Reference(z, far.labels))


def d(a: torch.Tensor, b: torch.Tensor) -> float:
    return sum((x - y) ** 2 for x, y in zip(a.tolist(), b.tolist(), strict=True)) ** 0.5


def hinge(value: float) -> float:
    return max(value, 0.0)


def query_loss(z, pool, own, chosen, up):
    terms = []
    for c in chosen:
        for x in range(len(pool)):
            if x != own:
                gap = d(z, pool[c]) - d(z, pool[x])
                terms.append(hinge(gap if up else -gap))
    return sum(terms) / len(terms)


def query_rank(z, pool, own, chosen, up):
    shares = []
    for c in chosen:
        rest = [x for x in range(len(pool)) if x not in (own, c)]
        bound = d(z, pool[c])
        ahead = [x for x in rest if d(z, pool[x]) < bound or (not up and d(z, pool[x]) == bound)]
        shares.append(len(ahead) / max(len(rest), 1))
    return sum(shares) / len(shares)


@pytest.mark.parametrize("name", ["qa-up", "qa-down"])
@given(count=st.integers(1, 3), seed=st.integers(0, 5))
def test_query_attacks_are_the_loop_over_candidates_and_items(name, count, seed):
    net, make = fresh()
    batch = ready(make, net, 9)
    goal = registry.build("goals", name, count=count)
    loss = goal.prepare(Probe(net), batch, torch.Generator().manual_seed(seed))
    z = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    pool, up = batch.reference.embeddings, name == "qa-up"
    assert all(len(set(row)) == count for row in loss.chosen.tolist())
    twin = [query_loss(z[i], pool, i, loss.chosen[i].tolist(), up) for i in range(4)]
    assert loss(z).tolist() == pytest.approx(twin)
    ranks = [query_rank(z[i], pool, i, loss.chosen[i].tolist(), up) for i in range(4)]
    assert loss.figures(z)["prank"].tolist() == pytest.approx(ranks)


@pytest.mark.parametrize("name", CANDIDATE)
@given(count=st.integers(1, 3), seed=st.integers(0, 5))
def test_candidate_attacks_are_the_loop_over_queries_and_items(name, count, seed):
    net, make = fresh()
    batch = ready(make, net, 9)
    goal = registry.build("goals", name, count=count)
    loss = goal.prepare(Probe(net), batch, torch.Generator().manual_seed(seed))
    rows = Gallery.of(Probe(net), batch, name).draw(
        count, 1.0 if name == "ca-up" else 0.01, torch.Generator().manual_seed(seed), name
    )
    z = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    pool, up = batch.reference.embeddings, name == "ca-up"
    twin, ranks = [], []
    for i in range(4):
        terms, shares = [], []
        for q in rows[i].tolist():
            rest = [x for x in range(9) if x not in (i, q)]
            gaps = [d(pool[q], z[i]) - d(pool[q], pool[x]) for x in rest]
            terms += [hinge(gap if up else -gap) / len(rest) for gap in gaps]
            ahead = [gap for gap in gaps if gap > 0 or (not up and gap == 0)]
            shares.append(len(ahead) / len(rest))
        twin.append(sum(terms) / count)
        ranks.append(sum(shares) / count)
    assert loss(z).tolist() == pytest.approx(twin)
    assert loss.figures(z)["prank"].tolist() == pytest.approx(ranks)


def test_lowered_items_come_from_the_nearest_and_never_from_the_own_row(net, make, gen):
    net = net.double()
    batch = ready(make, net, 60)
    gallery = Gallery.of(Probe(net), batch, "x")
    order = gallery.order(gallery.others)
    for seed in range(20):
        near = gallery.draw(2, 0.1, gen(seed), "x")
        assert all(set(near[i].tolist()) <= set(order[i, :5].tolist()) for i in range(4))
        anywhere = gallery.draw(59, 1.0, gen(seed), "x")
        assert all(sorted([*row.tolist(), i]) == list(range(60)) for i, row in enumerate(anywhere))


@pytest.mark.parametrize("name", ["sp-qa-up", "sp-qa-down"])
def test_what_is_to_stay_weighs_xi_and_holds_no_candidate(name, net, make, gen):
    net = net.double()
    batch = ready(make, net, 30)
    goal = registry.build("goals", name, count=2, xi=3.0)
    loss = goal.prepare(Probe(net), batch, gen(1))
    z = torch.randn(4, 6, dtype=torch.float64, generator=gen(2))
    chosen, friends = loss.attack.chosen, loss.friends.chosen
    assert friends.shape == (4, 5)
    assert not (chosen[:, :, None] == friends[:, None]).any()
    up = name == "sp-qa-up"
    pool = batch.reference.embeddings
    for i in range(4):
        twin = query_loss(z[i], pool, i, chosen[i].tolist(), up)
        twin += 3 * query_loss(z[i], pool, i, friends[i].tolist(), True)
        assert loss(z)[i].item() == pytest.approx(twin)
    assert set(loss.figures(z)) == {"prank", "prank_kept"}


def test_ltm_is_the_farthest_other_less_the_nearest_mate(net, make, gen):
    net = net.double()
    batch = ready(make, net, 12)
    loss = registry.build("goals", "ltm").prepare(Probe(net), batch, gen())
    z = torch.randn(4, 6, dtype=torch.float64, generator=gen(2)) / 4
    pool, labels = batch.reference.embeddings, batch.reference.labels.tolist()
    for i in range(4):
        other = [d(z[i], pool[x]) for x in range(12) if labels[x] != labels[i]]
        mate = [d(z[i], pool[x]) for x in range(12) if labels[x] == labels[i] and x != i]
        assert loss(z)[i].item() == pytest.approx(hinge(max(other) - min(mate)))
        assert loss.figures(z)["recall"][i].item() == float(min(mate) < min(other))


def test_gtm_goes_to_the_nearest_item_of_another_class_than_the_firsts(net, make, gen):
    net = net.double()
    batch = ready(make, net, 12)
    loss = registry.build("goals", "gtm").prepare(Probe(net), batch, gen())
    z = torch.randn(4, 6, dtype=torch.float64, generator=gen(2))
    pool, labels = batch.reference.embeddings, batch.reference.labels.tolist()
    for i in range(4):
        near = sorted((d(pool[i], pool[x]), x) for x in range(12) if x != i)
        aim = next(x for _, x in near if labels[x] != labels[near[0][1]])
        assert loss(z)[i].item() == pytest.approx(d(z[i], pool[aim]))


def test_gtt_lowers_the_clean_first_and_says_whether_four_are_as_near(net, make, gen):
    net = net.double()
    batch = ready(make, net, 12)
    loss = registry.build("goals", "gtt").prepare(Probe(net), batch, gen())
    z = torch.randn(4, 6, dtype=torch.float64, generator=gen(2))
    pool = batch.reference.embeddings
    for i in range(4):
        first = min((d(pool[i], pool[x]), x) for x in range(12) if x != i)[1]
        assert loss(z)[i].item() == pytest.approx(query_loss(z[i], pool, i, [first], False))
        rest = [x for x in range(12) if x not in (i, first)]
        nearer = sum(d(z[i], pool[x]) <= d(z[i], pool[first]) for x in rest)
        assert loss.figures(z)["retained"][i].item() == float(nearer < 4)
    assert loss.figures(pool[:4])["retained"].tolist() == [1.0] * 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gallery", [2, 3, 99])
def test_small_galleries_and_single_pictures_give_defined_results(name, gallery, net, make, gen):
    """PITFALLS 21: galleries of 1, 2 and 99; a batch of one."""
    net = net.double()
    batch = ready(make, net, gallery, pictures=1)
    loss = registry.build("goals", name).prepare(Probe(net), batch, gen())
    z = net(batch.images)
    assert torch.isfinite(loss(z)).all() and loss(z).shape == (1,)
    assert all(value.shape == (1,) and value.isfinite().all() for value in loss.figures(z).values())


@pytest.mark.parametrize("name", NAMES)
def test_a_gallery_of_the_picture_alone_is_refused(name, net, make, gen):
    batch = ready(make, net.double(), 1)
    with pytest.raises(UserError, match="another item than the picture itself"):
        registry.build("goals", name).prepare(Probe(net), batch, gen())


@pytest.mark.parametrize("name", NAMES)
def test_duplicates_give_finite_gradients(name, net, make, gen):
    """PITFALLS 7 and 21: distances of zero, items exactly as far."""
    net = net.double()
    batch = ready(make, net, 12, duplicates=True)
    loss = registry.build("goals", name).prepare(Probe(net), batch, gen())
    z = batch.reference.embeddings[:4].clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(z).sum(), z)
    assert grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_descending_lowers_the_loss_and_what_is_reported(name, net, make, gen):
    net = net.double()
    batch = ready(make, net, 24)
    goal = registry.build("goals", name)
    attack = Attack(goal, pgd(steps=20), Threat(0.1))
    result = attack(net, batch, generator=gen(4))
    loss = goal.prepare(Probe(net), batch, gen(4))
    with torch.no_grad():
        before, after = loss(net(batch.images)), loss(net(result.images))
        assert torch.allclose(after, result.loss)
        assert (after <= before).all() and (after < before).any() | (before == 0).all()
        reported = result.figures(net(result.images))
    assert reported.keys() == loss.figures(net(batch.images)).keys()


def test_a_picture_without_a_row_meets_the_whole_gallery(net, make, gen):
    net = net.double()
    batch = ready(make, net, 9)
    outside = replace(batch, index=torch.full((4,), -1))
    gallery = Gallery.of(Probe(net), outside, "x")
    assert gallery.others.all()
    assert torch.allclose(gallery.clean, net(batch.images))


def test_target_hits_are_the_targets_nearer_than_the_clean_nearest(net, make, gen):
    """Eq. 4 of MDProp, target by target."""
    net = net.double()
    batch = ready(make, net, 12)
    loss = registry.build("goals", "mtax:targets=2,targets_from=reference").prepare(
        Probe(net), batch, gen(3)
    )
    z = torch.randn(4, 6, dtype=torch.float64, generator=gen(2))
    pool = batch.reference.embeddings
    found = loss.figures(z)
    for i in range(4):
        nearest = min((d(pool[i], pool[x]), x) for x in range(12) if x != i)[1]
        hits = [d(z[i], aim) <= d(z[i], pool[nearest]) for aim in loss.aims[i]]
        assert found["target_hits"][i].item() == sum(hits) / 2
        assert found["all_targets"][i].item() == float(all(hits))


def fresh():
    from tests.attacks.conftest import Net, make

    return Net().eval().double(), make
