"""Asymmetric InfoNCE against slow loops over rows, and against pytorch-metric-learning."""

from __future__ import annotations

import math
import warnings
from typing import Any

import dmltk
import pytest
import torch
from dmltk.errors import UserError
from dmltk.losses.ainfonce import AInfoNCE
from hypothesis import given as drawn
from hypothesis import strategies as st
from pytorch_metric_learning.losses import NTXentLoss, SupConLoss
from torch import Tensor
from torch.nn.functional import normalize


def loss(**options: Any) -> AInfoNCE:
    made = dmltk.build("losses", "ainfonce", **options)
    assert isinstance(made, AInfoNCE)
    return made


def views(seed: int = 0, count: int = 3, batch: int = 4, dim: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(count, batch, dim, generator=generator, dtype=torch.float64)
    return list(normalize(made, dim=2))


def value_and_gradient(made: AInfoNCE, given: list[Tensor], **more: Any) -> tuple[float, Tensor]:
    leaves = [view.clone().requires_grad_() for view in given]
    value = made(*leaves, **more)
    return value.item(), torch.stack(torch.autograd.grad(value, leaves))


def slow(given: list[Tensor], stop: bool, t: float, hard: dict[str, float] | None) -> Tensor:
    """The term of each ordered pair of positives, (V, B, V), one exponential after the other."""
    count, batch = len(given), len(given[0])
    found = {}
    for v in range(count):
        for b in range(batch):
            anchor = given[v][b]

            def e(u: int, k: int, anchor: Tensor = anchor) -> Tensor:
                other = given[u][k].detach() if stop else given[u][k]
                return (anchor @ other / t).exp()

            positive = [e(u, b) for u in range(count) if u != v]
            negative = [e(u, k) for u in range(count) for k in range(batch) if k != b]
            if hard is None:
                total = torch.stack(positive + negative).sum()
            else:
                beta, tau = hard["beta"], hard.get("tau", 0.0)
                n = torch.stack(negative)
                q = n**beta
                mean = torch.stack(positive).mean()
                rest = ((q * n).sum() / q.mean() - tau * len(n) * mean) / (1 - tau)
                total = mean + rest.clamp(min=len(n) * math.exp(-1 / t))
            for u in range(count):
                if u != v:
                    found[v, b, u] = -(e(u, b) / total).log()
    return found  # type: ignore[return-value]


def by_hand(
    given: list[Tensor],
    *,
    t: float = 0.5,
    adversary: int | None = None,
    alpha: float | None = None,
    weight: float = 1.0,
    form: str = "advcl",
    hard: dict[str, float] | None = None,
) -> Tensor:
    """Equations 1.1 to 1.4 of the specification, pair by pair."""
    count, batch = len(given), len(given[0])
    both, stopped = (slow(given, stop, t, hard) for stop in (False, True))
    base = stopped if form == "rocl" else both
    total = torch.zeros((), dtype=given[0].dtype)
    for v, b, u in base:  # type: ignore[attr-defined]
        if adversary not in (v, u):
            total = total + base[v, b, u]
        elif alpha is None:
            total = total + weight * base[v, b, u]
        elif u == adversary:  # both orders of the pair at once
            mix = alpha * stopped[v, b, u] + (1 - alpha) * stopped[u, b, v]
            total = total + weight * (1 if form == "rocl" else 2) * mix
    return total / (count * batch) / (1 if form == "rocl" else count - 1)


CASES: list[dict[str, Any]] = [
    {},
    {"alpha": 0.2},
    {"alpha": 0.0, "weight": 1.5},
    {"alpha": 0.2, "form": "rocl"},
    {"form": "rocl"},
    {"hard": {"beta": 1.0}},
    {"hard": {"beta": 2.0, "tau": 0.05}},
    {"hard": {"beta": 0.0, "tau": 0.05}},
    {"alpha": 0.3, "weight": 0.7, "hard": {"beta": 1.0, "tau": 0.05}},
    {"alpha": 0.2, "form": "rocl", "hard": {"beta": 1.0, "tau": 0.05}},
    {"weight": 2.0},
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("place", [0, 1])
def test_value_and_gradient_are_those_of_slow_loops(
    case: dict[str, Any], count: int, place: int
) -> None:
    given = views(seed=count, count=count)
    options: dict[str, Any] = {**case.get("hard", {})}
    options |= {key: case[key] for key in ("alpha", "form") if key in case}
    options |= {"cross_weight": case["weight"]} if "weight" in case else {}
    mine = value_and_gradient(loss(adversaries=[place], **options), given)
    leaves = [view.clone().requires_grad_() for view in given]
    expected = by_hand(leaves, adversary=place, **case)
    gradient = torch.stack(torch.autograd.grad(expected, leaves))
    assert mine[0] == pytest.approx(expected.item(), rel=1e-10)
    assert torch.allclose(mine[1], gradient, rtol=1e-8, atol=1e-10)


@drawn(st.integers(0, 999), st.integers(2, 4), st.integers(2, 6), st.sampled_from([0.1, 0.5, 1.0]))
def test_without_weights_it_is_supcon_over_instances(
    seed: int, count: int, batch: int, t: float
) -> None:
    given = views(seed, count, batch)
    rows, names = torch.cat(given), torch.arange(batch).repeat(count)
    expected = SupConLoss(temperature=t)(rows, names).item()
    assert loss(temperature=t)(*given).item() == pytest.approx(expected, rel=1e-9)
    if count == 2:
        pairs = NTXentLoss(temperature=t)(rows, names).item()
        assert loss(temperature=t)(*given).item() == pytest.approx(pairs, rel=1e-9)


def test_labels_as_positives_are_supcon() -> None:
    given, labels = views(count=2, batch=6), torch.tensor([0, 0, 1, 1, 1, 2])
    expected = SupConLoss(temperature=0.5)(torch.cat(given), labels.repeat(2)).item()
    found = loss(positives="labels")(*given, labels=labels).item()
    assert found == pytest.approx(expected, rel=1e-9)


def test_half_an_alpha_has_the_plain_value_and_half_the_flow() -> None:
    given = views(count=2)
    plain = value_and_gradient(loss(), given)
    half = value_and_gradient(loss(adversaries=[1], alpha=0.5), given)
    assert half[0] == pytest.approx(plain[0], rel=1e-12)
    rocl = value_and_gradient(loss(adversaries=[1], alpha=0.5, form="rocl"), given)
    assert rocl[0] == pytest.approx(plain[0] / 2, rel=1e-12)
    own = value_and_gradient(loss(form="rocl"), given)[1]
    assert torch.allclose(half[1], own, atol=1e-12)


def test_no_alpha_at_all_never_pulls_the_clean_view() -> None:
    given = views(count=2)
    gradient = value_and_gradient(loss(adversaries=[1], alpha=0.0), given)[1]
    assert not gradient[0].any()
    assert gradient[1].abs().max() > 1e-3


def test_the_base_temperature_scales_value_and_gradient() -> None:
    one, other = (value_and_gradient(loss(base_temperature=b), views()) for b in (None, 0.07))
    assert other[0] / one[0] == pytest.approx(7.142857, rel=1e-6)
    assert torch.allclose(other[1], one[1] * 0.5 / 0.07)


def test_the_order_of_instances_does_not_matter() -> None:
    given, order = views(batch=6), torch.randperm(6)
    made = loss(adversaries=[2], alpha=0.2, beta=1.0, tau=0.05)
    shuffled = made(*(view[order] for view in given))
    assert made(*given).item() == pytest.approx(shuffled.item(), rel=1e-12)


@pytest.mark.parametrize("t", [0.5, 0.07, 0.011])
def test_small_temperatures_stay_finite_in_float32(t: float) -> None:
    given = views(count=2, batch=8)
    for options in ({}, {"beta": 1.0, "tau": 0.01}):
        wide = value_and_gradient(loss(temperature=t, **options), given)
        narrow = value_and_gradient(loss(temperature=t, **options), [v.float() for v in given])
        assert narrow[0] == pytest.approx(wide[0], rel=1e-3)
        assert narrow[1].isfinite().all()


def test_it_is_computed_in_float32_under_autocast() -> None:
    given = [view.float() for view in views()]
    with torch.autocast("cpu", torch.bfloat16):
        found = loss()(*given)
    assert found.dtype == torch.float32
    assert found.item() == loss()(*given).item()


def test_negatives_on_the_floor_cost_the_floor_and_are_warned_of_once() -> None:
    away = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    made = loss(beta=1.0, tau=0.5)
    with pytest.warns(UserWarning, match="100% of the anchors sit on their floor"):
        found = made(away, away)
    positive, floor = math.exp(2), 2 * math.exp(-2)
    assert found.item() == pytest.approx(-math.log(positive / (positive + floor)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(away, away)


def test_weights_may_send_no_gradient() -> None:
    through = value_and_gradient(loss(beta=1.0), views())
    beside = value_and_gradient(loss(beta=1.0, detach_weights=True), views())
    assert through[0] == pytest.approx(beside[0], rel=1e-12)
    assert not torch.allclose(through[1], beside[1], atol=1e-4)


def test_a_queue_repels_and_holds_the_latest_clean_embeddings() -> None:
    made = loss(queue=5, embedding_size=5, adversaries=[0])
    first, second = views(1, 2, 3), views(2, 2, 4)
    assert made(*first).item() == pytest.approx(loss()(*first).item(), rel=1e-9)
    assert torch.allclose(made.past[:3].double(), first[1])
    s = torch.cat(second) @ torch.cat([*second, made.past[:3].double()]).T / 0.5
    costs = []
    for row in range(8):
        others = [float(s[row, k]) for k in range(11) if k != row]
        costs.append(math.log(sum(map(math.exp, others))) - float(s[row, (row + 4) % 8]))
    assert made(*second).item() == pytest.approx(sum(costs) / 8, rel=1e-6)
    expected = torch.stack([second[1][2], second[1][3], first[1][2], second[1][0], second[1][1]])
    assert torch.allclose(made.past.double(), expected, atol=1e-6)
    state = made.state_dict()
    other = loss(queue=5, embedding_size=5)
    other.load_state_dict(state)
    assert int(other.held) == 7
    made.eval()
    made(*first)
    assert torch.equal(made.past, state["past"])


def apart(gap: float) -> tuple[Tensor, Tensor]:
    """Unit features at that distance of each other."""
    angle = 2 * math.asin(gap / 2)
    return torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[math.cos(angle), math.sin(angle)]] * 2)


def test_alpha_follows_the_distance_once_it_is_warm() -> None:
    made = loss(adversaries=[1], alpha=0.2, alpha_warm=2, alpha_least=0.5)
    given = [view[:2] for view in views(count=2)]
    seen = []
    for gap in (0.6, 1.0, 0.9, 0.8, 0.6, 0.41, 0.39):
        made(*given, *apart(gap))
        seen.append(made.alpha_now)
    between = [0.2 + 0.3 * (0.8 - gap) / 0.4 for gap in (0.6, 0.41)]
    assert seen == pytest.approx([0.2, 0.2, 0.2, 0.2, *between, 0.5], abs=1e-5)
    assert float(made.distance) == pytest.approx(0.8)
    assert int(made.calls) == 2


def test_features_that_never_move_leave_alpha_alone() -> None:
    made = loss(adversaries=[1], alpha=0.2, alpha_warm=1)
    given = [view[:2] for view in views(count=2)]
    for _ in range(3):
        made(*given, *apart(0.0))
    assert made.alpha_now == 0.2


def test_the_release_overwrites_one_direction() -> None:
    """Its clean-to-adversary block is the other direction's: w + w² of that one, none of this."""
    given, w = views(count=2), 1.5
    made = loss(adversaries=[1], cross_weight=w, variant="release")
    costs = slow(given, False, 0.5, None)
    batch = len(given[0])
    expected = sum((w + w * w) * costs[1, b, 0] for b in range(batch)) / (2 * batch)
    assert made(*given).item() == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("form", ["advcl", "rocl"])
def test_the_release_weighs_negatives_by_column(form: str) -> None:
    given = views(count=2)
    z = torch.cat(given)
    e = (z @ z.T / 0.5 - 2).exp()
    instance = torch.arange(8) % 4
    negative = instance[:, None] != instance
    positive = ~negative & ~torch.eye(8, dtype=torch.bool)
    q = torch.where(negative, e, 0.0)
    r = (q * q / q.mean(1)[None, :]).sum(1)
    floor = 6 * math.exp(-2) if form == "advcl" else 6 * math.exp(-4)
    total = (e * positive).sum(1) + r.clamp(min=floor)
    total = total[None, :] if form == "advcl" else total[:, None]
    expected = -(e / total).log()[positive].sum() / 8
    found = loss(beta=1.0, variant="release", form=form)(*given)
    assert found.item() == pytest.approx(expected.item(), rel=1e-10)


def test_gradients_are_the_central_differences() -> None:
    given = tuple(view.requires_grad_() for view in views(batch=3))
    made = loss(beta=1.0, tau=0.02)

    def unit(*raw: Tensor) -> Tensor:
        return made(*(normalize(view, dim=1) for view in raw))

    assert torch.autograd.gradcheck(unit, given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": 0.2}, "knows none"),
        ({"cross_weight": 2.0}, "knows none"),
        ({"alpha": 0.6, "adversaries": [1]}, "alpha"),
        ({"tau": 0.1}, "tau needs beta"),
        ({"beta": 1.0, "tau": 1.0}, "tau"),
        ({"alpha_warm": 5}, "alpha_warm needs alpha"),
        ({"queue": 8}, "embedding_size"),
        ({"queue": 8, "positives": "labels"}, "keeps no labels"),
        ({"adversaries": [1, 1]}, "names one twice"),
        ({"temperature": 0}, "temperature"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        loss(**options)


def test_batches_that_cannot_be_contrasted_are_refused() -> None:
    good = views(count=2)
    for given, said in [
        (good[:1], "two views"),
        ([view[:1] for view in good], "two pictures at least"),
        ([good[0], good[1][:2]], "one shape"),
        ([good[0] * 2, good[1]], "unit length"),
    ]:
        with pytest.raises(UserError, match=said):
            loss()(*given)
    with pytest.raises(UserError, match="3 views at least and two features"):
        loss(adversaries=[2], alpha=0.1, alpha_warm=2)(*good, *good)
