"""Ranking goals against loops written from the table of their sources."""

from __future__ import annotations

from dataclasses import replace

import dmltk
import pytest
import torch
from dmltk import Batch, Reference, UserError, registry
from dmltk.attacks import Attack, Probe, Threat, build, pgd
from dmltk.attacks import gallery as galleries
from dmltk.attacks.gallery import Gallery
from dmltk.evaluation.metrics import first_hits
from hypothesis import assume, given, settings
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
    if gallery == 2 and name.startswith("sp"):
        with pytest.raises(UserError, match="ask for fewer candidates"):
            registry.build("goals", name).prepare(Probe(net), batch, gen())
        return
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
    assert all(value.isfinite().all() for value in loss.figures(z).values())


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
    drawn = gallery.draw(9, 1.0, gen(), "x")
    assert all(sorted(row.tolist()) == list(range(9)) for row in drawn)


@st.composite
def lists(draw: st.DrawFn) -> tuple[Batch, torch.Tensor, int]:
    """Whole numbers, so that ties and duplicates abound; rows of their own, or none."""
    dim, items = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    point = st.lists(st.integers(-2, 2), min_size=dim, max_size=dim)
    pool = torch.tensor(draw(st.lists(point, min_size=items, max_size=items))).double()
    labels = torch.tensor(draw(st.lists(st.integers(0, 3), min_size=items, max_size=items)))
    index = draw(st.lists(st.integers(-1, items - 1), min_size=1, max_size=4))
    clean, own = pool[index].clone(), labels[index].clone()
    for place in [i for i, row in enumerate(index) if row < 0]:
        clean[place] = torch.tensor(draw(point)).double()
        own[place] = draw(st.integers(0, 3))
    assume(len(labels.unique()) > 1)
    z = torch.tensor(draw(st.lists(point, min_size=len(index), max_size=len(index)))).double()
    batch = Batch(clean[:, :, None, None], own, torch.tensor(index), Reference(pool, labels))
    return batch, z, draw(st.integers(0, 99))


def flat(images):
    return images.flatten(1)


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", NAMES)
@given(given=lists())
def test_every_goal_is_its_row_of_the_table_also_where_items_are_tied(name, given):
    batch, z, seed = given
    pool, labels = batch.reference.embeddings, batch.reference.labels.tolist()
    goal = registry.build("goals", name)
    if name.startswith("sp") and len(pool) < 4:
        return
    loss = goal.prepare(Probe(flat), batch, torch.Generator().manual_seed(seed))
    values, figures = loss(z).tolist(), {k: v.tolist() for k, v in loss.figures(z).items()}
    whole = Gallery.of(Probe(flat), batch, name)
    drawn = whole.draw(1, 1.0 if name.endswith("up") else 0.01,
                       torch.Generator().manual_seed(seed), name)  # fmt: skip
    for i, own in enumerate(batch.index.tolist()):
        clean, label = flat(batch.images)[i], int(batch.labels[i])
        rest = [x for x in range(len(pool)) if x != own]
        near = sorted(rest, key=lambda x, c=clean: (d(c, pool[x]), x))
        mates = [d(z[i], pool[x]) for x in rest if labels[x] == label]
        foes = [d(z[i], pool[x]) for x in rest if labels[x] != label]
        pick = int(drawn[i, 0])
        assert pick in rest and (name.endswith("up") or pick == near[0])
        up = name.endswith("up")
        if name in QUERY:
            twin = query_loss(z[i], pool, own, [pick], up)
            assert figures["prank"][i] == pytest.approx(query_rank(z[i], pool, own, [pick], up))
            if name.startswith("sp"):
                kept = [x for x in near if x != pick][: loss.friends.chosen.shape[1]]
                twin += 100 * query_loss(z[i], pool, own, kept, True)
                ranks = query_rank(z[i], pool, own, kept, True)
                assert figures["prank_kept"][i] == pytest.approx(ranks)
        elif name in CANDIDATE:
            gaps = [d(pool[pick], z[i]) - d(pool[pick], pool[x]) for x in rest if x != pick]
            twin = sum(hinge(g if up else -g) for g in gaps) / max(len(gaps), 1)
            ahead = sum(g > 0 or (g == 0 and not up) for g in gaps) / max(len(gaps), 1)
            assert figures["prank"][i] == pytest.approx(ahead)
        elif name == "gtt":
            twin = query_loss(z[i], pool, own, [near[0]], False)
            bound = d(z[i], pool[near[0]])
            ahead = sum(d(z[i], pool[x]) <= bound for x in rest if x != near[0])
            assert figures["retained"][i] == (ahead < 4)
        else:
            foreign = [x for x in near if labels[x] != labels[near[0]]] or near
            twin = d(z[i], pool[foreign[0]])
            if name == "ltm":
                twin = hinge(max(foes, default=0) - min(mates, default=0))
            infinite = float("inf")
            recall = min(mates, default=infinite) < min(foes, default=infinite)
            assert figures["recall"][i] == recall
        assert values[i] == pytest.approx(twin, abs=1e-9)


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ["ltm", "gtm", "misrank"])
@given(given=lists())
def test_reported_recall_is_that_of_the_metric(name, given):
    """Ties count against the model in both; who is alone in its class is not found."""
    batch, z, _ = given
    try:
        loss = registry.build("goals", name).prepare(Probe(flat), batch, torch.Generator())
    except UserError as error:
        assert "no other class" in str(error)
        return
    whole = batch.reference
    ranks = first_hits(z, whole.embeddings, batch.labels, whole.labels, batch.index)
    assert torch.equal(loss.figures(z)["recall"], (ranks == 1).double())


def test_the_older_goals_report_cosine_and_shift(net, make, gen):
    net = net.double()
    batch = ready(make, net, 9)
    z = 2 * torch.randn(4, 6, dtype=torch.float64, generator=gen(2))
    clean = net(batch.images).detach()
    flee = registry.build("goals", "flee").prepare(Probe(net), batch, gen())
    moved = [d(a, b) for a, b in zip(z, clean, strict=True)]
    assert flee.figures(z)["shift"].tolist() == pytest.approx(moved)
    tma = registry.build("goals", "tma").prepare(Probe(net), batch, gen(1))
    for a, aim, found in zip(z, tma.aims, tma.figures(z)["cosine"], strict=True):
        zero = torch.zeros(6)
        cosine = sum(x * y for x, y in zip(a.tolist(), aim.tolist(), strict=True))
        assert found.item() == pytest.approx(cosine / d(a, zero) / d(aim, zero))
    bare = build("stax", eps=0.1)(net, replace(batch, reference=None), generator=gen())
    assert bare.figures is None


def test_distances_taken_in_parts_have_the_same_values_and_gradients(monkeypatch, gen):
    """PITFALLS 28: on a GPU the gradient of cdist holds every difference at once."""
    pool = torch.randn(11, 5, dtype=torch.float64, generator=gen())
    z = pool[:3].clone().requires_grad_()
    weights = torch.randn(3, 11, dtype=torch.float64, generator=gen(1))
    found = []
    for cells in (1 << 26, 60, 1):
        monkeypatch.setattr(galleries, "CELLS", cells)
        value = galleries.distances(z, pool)
        (grad,) = torch.autograd.grad((value * weights).sum(), z)
        found.append((value.detach(), grad))
    for value, grad in found[1:]:
        assert torch.equal(value, found[0][0])
        assert torch.allclose(grad, found[0][1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_ranking_goal_lacks_is_said(name, net, make, gen):
    """PITFALLS 13: checked before running, with the reason."""
    batch = ready(make, net.double(), 9)
    one = replace(batch.reference, labels=torch.zeros(9, dtype=torch.long))
    cases = [
        (replace(batch, reference=None), "give the batch one"),
        (replace(batch, index=None), "by index"),
        (replace(batch, index=torch.tensor([0, 1, 2, 9])), "row 9 .* the reference has 9"),
    ]
    if name in ("ltm", "gtm"):
        cases += [(replace(batch, labels=None), "needs labels")]
        alike = torch.zeros(4, dtype=torch.long)
        cases += [(replace(batch, labels=alike, reference=one), "no other class")]
    for lacking, said in cases:
        with pytest.raises(UserError, match=said):
            Attack(registry.build("goals", name), pgd())(net, lacking, generator=gen())
    if name in (*QUERY, *CANDIDATE):
        with pytest.raises(UserError, match="asks for 9 items and the reference has 8"):
            registry.build("goals", name, count=9).prepare(Probe(net), batch, gen())
        with pytest.raises(UserError, match="count"):
            registry.build("goals", f"{name}:0")


@pytest.mark.parametrize("name", NAMES)
def test_a_ranking_attack_is_named_described_and_by_default_pgd(name):
    for kind in ("attack", "goal"):
        shown = dmltk.describe(kind, name)
        assert shown.source and len(shown.summary) > 20
        assert all(parameter.meaning for parameter in shown.parameters)
    attack = build(f"{name}:steps=3,eps=.1")
    assert attack == Attack(registry.build("goals", name), pgd(3), Threat(0.1))


@pytest.mark.parametrize("name", NAMES)
def test_the_draws_of_a_ranking_attack_follow_from_its_generator(name, net, make, gen):
    net = net.double()
    batch = ready(make, net, 24)
    attack = build(f"{name}:steps=2")
    one, same = (attack(net, batch, generator=gen(5)).images for _ in range(2))
    assert torch.equal(one, same)


@pytest.mark.parametrize("name", ["ca-down", "qa-down", "sp-qa-down", "ltm", "gtm", "gtt"])
def test_without_draws_a_picture_is_attacked_alike_whatever_its_batch_mates(name, net, make, gen):
    """The nearest one per cent of a small gallery is the nearest item: nothing is left to draw."""
    net = net.double()
    batch = ready(make, net, 24)
    attack = build(f"{name}:steps=3,start=0")
    found = attack(net, batch, generator=gen()).images
    for rows in ([2], [3, 1], [1, 0, 2]):
        some = replace(batch, images=batch.images[rows], labels=batch.labels[rows],
                       index=batch.index[rows])  # fmt: skip
        alone = attack(net, some, generator=gen()).images
        assert torch.allclose(alone, found[rows], rtol=0, atol=1e-9)


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
