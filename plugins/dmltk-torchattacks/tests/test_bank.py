"""Class centres as a classifier, and how a goal names the class to reach."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dmltk import Reference, registry
from dmltk.attacks import Flee, Probe, Stax
from dmltk.errors import UserError
from dmltk_torchattacks.bank import Bank, Centres
from dmltk_torchattacks.table import TABLE


def centres_of(row: str = "CW", goal=None, targets_from="reference", classes=2) -> Centres:
    return Centres(TABLE[row], goal, targets_from, 0.1, classes)


def brute(reference: Reference) -> torch.Tensor:
    """(K, D) means, one class at a time."""
    rows = reference.labels
    return torch.stack([reference.embeddings[rows == c].mean(0) for c in rows.unique()])


def test_columns_rank_classes_by_distance_and_differ_by_it(net, make, gen):
    net = net.double()
    batch = make(5, net, torch.float64)
    bank = centres_of().prepare(Probe(net), batch, gen())
    z = torch.randn(7, 6, dtype=torch.float64, generator=gen(1))
    distance = torch.stack([(z - c).square().sum(1) for c in brute(batch.reference)], 1)
    logits = bank.logits(z)
    assert torch.allclose(logits - logits[:, :1], (distance[:, :1] - distance) / 0.1)
    assert torch.equal(logits.amin(1), torch.zeros(7, dtype=torch.float64))


def test_the_loss_is_the_margin_to_the_nearest_other_centre(net, make, gen):
    net = net.double()
    batch = make(5, net, torch.float64)
    bank = centres_of().prepare(Probe(net), batch, gen())
    z = net(batch.images).detach()
    for row, label in enumerate(batch.labels):
        distance = (z[row] - brute(batch.reference)).square().sum(1) / 0.1
        others = torch.cat([distance[:label], distance[label + 1 :]])
        assert torch.isclose(bank(z)[row], others.min() - distance[label])
    aimed = replace(bank, aimed=True)
    assert torch.equal(aimed(z), -bank(z))


def test_labels_are_the_own_classes_columns_whatever_their_numbers(net, make, gen):
    batch = make(6, net)
    gaps = torch.tensor([40, 7, 19, 3])
    reference = replace(batch.reference, labels=gaps[batch.reference.labels])
    batch = replace(batch, labels=gaps[batch.labels], reference=reference)
    bank = centres_of().prepare(Probe(net), batch, gen())
    assert torch.equal(batch.reference.labels.unique()[bank.labels], batch.labels)
    assert not bank.aimed


def test_a_goal_names_the_class_at_whose_centre_its_loss_is_lowest(net, make, gen):
    net = net.double()
    batch = make(8, net, torch.float64)
    goal = Stax(targets_from="reference")
    bank = centres_of(goal=goal).prepare(Probe(net), batch, gen(2))
    loss = goal.prepare(Probe(net), batch, gen(2))
    middles = brute(batch.reference)
    for row, label in enumerate(batch.labels):
        at = [float(loss(middles[c].expand(8, -1))[row]) for c in range(4)]
        at[label] = float("inf")
        assert bank.labels[row] == min(range(4), key=at.__getitem__)
    assert bank.aimed and (bank.labels != batch.labels).all()


def test_flee_names_the_farthest_class(net, make, gen):
    batch = make(4, net)
    bank = centres_of(goal=Flee()).prepare(Probe(net), batch, gen())
    away = torch.cdist(net(batch.images), brute(batch.reference)).scatter(
        1, batch.labels[:, None], -1
    )
    assert torch.equal(bank.labels, away.argmax(1))


def test_a_class_that_has_to_aim_takes_the_nearest_other(net, make, gen):
    batch = make(4, net)
    bank = centres_of("JSMA").prepare(Probe(net), batch, gen())
    away = torch.cdist(net(batch.images), brute(batch.reference))
    nearest = away.scatter(1, batch.labels[:, None], torch.inf).argmin(1)
    assert bank.aimed and torch.equal(bank.labels, nearest)


def test_the_batch_itself_can_give_the_centres(net, make, gen):
    batch = make(8, net)
    probe = Probe(net)
    bank = centres_of(targets_from="batch").prepare(probe, batch, gen())
    own = Reference(net(batch.images).detach(), batch.labels)
    assert torch.allclose(bank.centres, brute(own), atol=1e-6) and probe.forwards == 8


@pytest.mark.parametrize(
    ("name", "classes"), [("CW", 2), ("APGD", 2), ("APGD,loss=dlr", 3), ("APGDT", 4)]
)
def test_too_few_classes_are_told_before_anything_runs(net, make, gen, name, classes):
    batch = make(classes - 1, net)
    attack = registry.build("attacks", f"torchattacks:{name}")
    with pytest.raises(UserError, match=f"{classes} classes or more and the batch has"):
        attack(net, batch, generator=gen())


class Joint:
    def prepare(self, probe, batch, generator):
        return lambda z: z.sum()


def test_what_a_bank_lacks_is_told(net, make, gen):
    batch = make(4, net)
    absent = replace(batch.reference, labels=batch.reference.labels + 1)
    for changed, said in (
        (replace(batch, labels=None), "need labels"),
        (replace(batch, reference=None), "needs a batch with a reference"),
        (replace(batch, reference=absent), "no picture of class 0"),
    ):
        with pytest.raises(UserError, match=said):
            centres_of().prepare(Probe(net), changed, gen())
    with pytest.raises(UserError, match="names no class"):
        centres_of(goal=Joint()).prepare(Probe(net), batch, gen())


def test_an_objective_in_a_bank_s_place_is_told(net, make, gen):
    attack = registry.build("attacks", "torchattacks:CW")
    with pytest.raises(UserError, match="CW attacks class centres and takes no objective"):
        replace(attack, goal=Stax())(net, make(4, net), generator=gen())


@pytest.mark.parametrize("name", ["APGD,steps=20", "CW,steps=100,lr=.05,c=5", "FAB"])
def test_a_picture_that_moved_has_left_its_class_s_centre(net, make, gen, name):
    """What comes back changed is nearer to another centre; the rest comes back untouched."""
    batch = make(16, net)
    eps = {} if TABLE[name.split(",")[0]].norm == "none" else {"eps": 0.2}
    attack = registry.build(
        "attacks", f"torchattacks:{name}", context={"targets_from": "reference", **eps}
    )
    result = attack(net, batch, generator=gen())
    nearest = torch.cdist(net(result.images).detach(), brute(batch.reference)).argmin(1)
    moved = result.linf > 0
    assert moved.sum() >= 8
    assert (nearest[moved] != batch.labels[moved]).all()


def test_reaching_a_named_class_reaches_it(net, make, gen):
    batch = make(16, net)
    attack = registry.build(
        "attacks",
        "torchattacks:CW,goal=stax,steps=100,lr=.05,c=5",
        context={"targets_from": "reference"},
    )
    result = attack(net, batch, generator=gen(4))
    bank = attack.goal.prepare(Probe(net), batch, gen(4))
    assert isinstance(bank, Bank)
    nearest = torch.cdist(net(result.images).detach(), brute(batch.reference)).argmin(1)
    moved = result.linf > 0
    assert moved.sum() >= 8 and torch.equal(nearest[moved], bank.labels[moved])
