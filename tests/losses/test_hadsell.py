"""The identities of the Siamese page, each by hand or by central differences."""

from __future__ import annotations

import copy
import itertools
import math

import dmltk
import pytest
import torch
from dmltk.data.samplers import BalancedBatches
from dmltk.errors import DmltkError, UserError
from dmltk.losses.hadsell import Hadsell
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

seeds = st.integers(0, 10_000)


def batch(seed: int, count: int = 9, size: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, size, generator=generator, dtype=torch.float64) * 0.6
    return z, torch.randint(3, (count,), generator=generator)


def by_hand(z: Tensor, labels: Tensor, margin: float) -> float:
    costs = []
    for i, j in itertools.combinations(range(len(z)), 2):
        d = math.dist(z[i].tolist(), z[j].tolist())
        costs.append(d * d / 2 if labels[i] == labels[j] else max(0.0, margin - d) ** 2 / 2)
    return sum(costs) / len(costs)


def slopes(z: Tensor, labels: Tensor, **options: float) -> tuple[float, Tensor]:
    z = z.clone().requires_grad_()
    value = Hadsell(**options)(z, labels=labels)  # type: ignore[arg-type]
    return value.item(), torch.autograd.grad(value, z)[0]


def test_the_worked_pair() -> None:
    z = torch.tensor([[0.0, 0.0], [0.36, 0.48]], dtype=torch.float64)
    like, unlike = slopes(z, torch.tensor([0, 0])), slopes(z, torch.tensor([0, 1]))
    assert like[0] == pytest.approx(0.18)
    assert like[1][0].tolist() == pytest.approx([-0.36, -0.48])
    assert unlike[0] == pytest.approx(0.08)
    assert unlike[1][0].tolist() == pytest.approx([0.24, 0.32])


def test_the_pair_of_a_real_batch() -> None:
    z = torch.tensor([[0.0], [0.1536]], dtype=torch.float64)
    assert slopes(z, torch.tensor([1, 1]))[0] == pytest.approx(0.0118, abs=5e-5)
    assert slopes(z, torch.tensor([0, 1]))[0] == pytest.approx(0.3582, abs=5e-5)


@given(seeds, st.floats(0.1, 4))
def test_it_is_the_mean_over_pairs(seed: int, margin: float) -> None:
    z, labels = batch(seed)
    assert Hadsell(margin)(z, labels=labels).item() == pytest.approx(by_hand(z, labels, margin))


def test_adjacent_pairs_are_rows_two_by_two() -> None:
    z, labels = batch(3, count=8)
    pairs = [by_hand(z[i : i + 2], labels[i : i + 2], 1.0) for i in range(0, 8, 2)]
    assert Hadsell(pairs="adjacent")(z, labels=labels).item() == pytest.approx(sum(pairs) / 4)
    with pytest.raises(UserError, match="odd batch"):
        Hadsell(pairs="adjacent")(z[:3], labels=labels[:3])


def test_two_like_positions_have_no_slope() -> None:
    z = torch.zeros(2, 3, dtype=torch.float64)
    value, slope = slopes(z, torch.tensor([0, 1]))
    assert value == 0.5
    assert not slope.any()


@given(seeds)
def test_a_rigid_motion_changes_nothing(seed: int) -> None:
    z, labels = batch(seed)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    there = (z @ turn + torch.tensor([3.0, -1.0, 0.5])).flip(1)
    assert Hadsell()(there, labels=labels).item() == pytest.approx(by_hand(z, labels, 1), abs=1e-12)


@given(seeds, st.floats(0.1, 8))
def test_the_margin_is_a_scale(seed: int, c: float) -> None:
    z, labels = batch(seed)
    once = Hadsell(0.9)(z, labels=labels).item()
    scaled = Hadsell(0.9 * c)(c * z, labels=labels).item()
    assert scaled == pytest.approx(c * c * once, rel=1e-9, abs=1e-15)
    fair = Hadsell(0.9 * c, per_margin=True)(c * z, labels=labels).item()
    assert fair == pytest.approx(once / 0.81, rel=1e-9, abs=1e-15)


def network(seed: int = 0) -> nn.Module:
    return dmltk.build("models", f"tanhconv:dim=8,unit=false,seed={seed}").double()


def pictures(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 16, 16, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("c", [0.5, 2.0, 4.0])
def test_a_larger_margin_walks_the_same_way_in_larger_steps(c: float) -> None:
    """Last layer times c at its rate, the others at theirs over c²: positions times c, bitwise."""
    images, labels = pictures(12), torch.arange(12) % 3
    plain, scaled = network(), network()
    with torch.no_grad():
        for parameter in scaled.heads.parameters():  # type: ignore[union-attr]
            parameter.mul_(c)
    steps = []
    for model, margin, rate in ((plain, 1.0, 0.5), (scaled, c, 0.5 / c**2)):
        groups = [
            {"params": model.backbone.parameters(), "lr": rate},  # type: ignore[union-attr]
            {"params": model.heads.parameters(), "lr": 0.5},  # type: ignore[union-attr]
        ]
        optimizer = torch.optim.SGD(groups, lr=0.5)
        for _ in range(20):
            optimizer.zero_grad()
            Hadsell(margin)(model(images), labels=labels).backward()
            optimizer.step()
        steps.append(model(images))
    assert torch.equal(steps[0] * c, steps[1])


def test_the_gradient_is_of_both_copies_and_one_alone_is_wrong() -> None:
    model, (a, b) = network(), pictures(2).split(1)
    parameters = dict(model.named_parameters())
    other = copy.deepcopy(model)

    def distance_loss(first: Tensor, second: Tensor) -> Tensor:
        return Hadsell(pairs="adjacent")(torch.cat([first, second]), labels=torch.tensor([0, 0]))

    whole = torch.autograd.grad(distance_loss(model(a), model(b)), list(parameters.values()))
    one = torch.autograd.grad(distance_loss(model(a), other(b).detach()), [*parameters.values()])
    wrong = 0.0
    for (name, parameter), both, alone in zip(parameters.items(), whole, one, strict=True):
        place = int(both.abs().argmax())
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.view(-1)[place] += sign * 1e-5
                values.append(distance_loss(model(a), model(b)).item())
                parameter.view(-1)[place] -= sign * 1e-5
        central = (values[0] - values[1]) / 2e-5
        assert both.view(-1)[place].item() == pytest.approx(central, abs=1e-9), name
        wrong = max(wrong, abs(alone.view(-1)[place].item() - central))
    assert wrong > 1e-3


def test_the_last_bias_gets_opposite_slopes_that_sum_to_zero() -> None:
    model, (a, b) = network(), pictures(2).split(1)
    first, second = model(a), model(b)
    value = Hadsell()(torch.cat([first, second]), labels=torch.tensor([0, 1]))
    one, two = torch.autograd.grad(value, [first, second])
    assert one.abs().max() > 1e-3
    assert torch.equal(one + two, torch.zeros_like(one))


def test_a_batch_is_the_mean_of_its_pairs_walked_one_by_one() -> None:
    """24 pictures of three kinds: 276 pairs, 84 like and 192 unlike, each picture in 23."""
    model, images, labels = network(), pictures(24), torch.arange(24) // 8
    parameters = list(model.parameters())
    at_once = torch.autograd.grad(Hadsell()(model(images), labels=labels), parameters)
    total = [torch.zeros_like(p) for p in parameters]
    like, pairs = 0, list(itertools.combinations(range(24), 2))
    for i, j in pairs:
        rows = torch.tensor([i, j])
        value = Hadsell()(model(images[rows]), labels=labels[rows])
        for part, grad in zip(total, torch.autograd.grad(value, parameters), strict=True):
            part += grad
        like += int(labels[i] == labels[j])
    assert (len(pairs), like) == (276, 84)
    for part, grad in zip(total, at_once, strict=True):
        assert torch.allclose(part / 276, grad, rtol=0, atol=1e-14)


def test_batches_of_eight_of_three_kinds_leave_four_of_sixty_out() -> None:
    labels = torch.arange(180) // 60
    sampler = BalancedBatches(labels, batch=24, per_class=8, seed=0)
    seen = [row for batch in sampler for row in batch]
    assert len(sampler) == 7
    assert len(seen) == len(set(seen)) == 168
    assert labels[torch.tensor(seen)].bincount().tolist() == [56, 56, 56]


def test_a_batch_without_pairs_costs_nothing_and_is_counted() -> None:
    loss = Hadsell()
    z = torch.ones(1, 2, requires_grad=True)
    loss(z, labels=torch.tensor([0])).backward()
    assert not z.grad.any()  # type: ignore[union-attr]
    assert loss.inactive == 1


def test_labels_are_needed() -> None:
    with pytest.raises(DmltkError, match="label for each"):
        Hadsell()(torch.ones(2, 2))
    with pytest.raises(UserError, match="margin"):
        dmltk.build("losses", "hadsell:margin=0")
