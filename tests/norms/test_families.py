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
        expected = copy.deepcopy(plain).train(mode)
        wanted = expected(pictures(0))
        torch.manual_seed(0)
        assert torch.equal(model(pictures(0), route=route), wanted)
        merged = model.merge(route)
        assert same(state(merged), state(expected))
        assert [p.training for p in merged.modules()] == [p.training for p in expected.modules()]


def test_training_a_route_leaves_the_other_sets_alone(
    family: tuple[Embedder, str], pictures: Pictures
) -> None:
    embedder, layers = family
    model = routed(embedder, layers, noise=0.1).train()
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
    weights = {k for k, p in embedder.state_dict(keep_vars=True).items() if p.requires_grad}
    shared = weights - private.keys()
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
            assert sorted(id(p) for p in model.parameters()) == sorted(outside)
            assert {id(b) for b in model.buffers()} == buffers


def test_a_joint_loss_over_routes_is_that_of_separate_embedders(
    family: tuple[Embedder, str], pictures: Pictures
) -> None:
    embedder, layers = family
    model = routed(embedder, layers, noise=0.1).train()
    if hasattr(embedder.backbone, "drop_path_rate"):
        embedder.backbone.drop_path_rate = 0
    twins = [model.merge(route).train() for route in ROUTES]
    for twin in twins:
        twin.backbone.set_grad_checkpointing(False)
    torch.manual_seed(0)
    ours = [model(pictures(seed), route=route) for seed, route in enumerate(ROUTES)]
    torch.manual_seed(0)
    theirs = [twin(pictures(seed)) for seed, twin in enumerate(twins)]
    for outputs in (ours, theirs):
        torch.cat(outputs).pow(3).sum().backward()
    private = {slot.key for slot in model.slots}
    mine = model.state_dict(keep_vars=True)
    for route, twin in zip(ROUTES, twins, strict=True):
        for key, value in twin.state_dict(keep_vars=True).items():
            held = mine[f"sets.{route}.{key}" if key in private and route != "main" else key]
            if key in private or not value.requires_grad:
                assert torch.equal(held, value), key
            wanted = value.grad if key in private else total(twins, key)
            if wanted is not None:
                assert (held.grad - wanted).abs().max() <= 1e-4 * wanted.abs().max() + 1e-7, key


def total(twins: list[Embedder], key: str) -> Tensor | None:
    """The summed gradient of a shared tensor."""
    found = [twin.state_dict(keep_vars=True)[key].grad for twin in twins]
    return None if found[0] is None else torch.stack(found).sum(0)


@pytest.mark.parametrize("name", ["resnet10t", "densenet", "test_efficientnet", "regnetx_002"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_gradient_and_no_statistic(
    embed: Callable[[str], Embedder],
    pictures: Pictures,
    name: str,
    reentrant: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timm.layers.config._USE_REENTRANT_CKPT", reentrant)
    embedder = embed(name if name == "densenet" else f"timm:{name},dim=8")
    found = []
    for checkpointing in (False, True):
        model = routed(copy.deepcopy(embedder), "bn", noise=0.1).train()
        model.embedder.backbone.set_grad_checkpointing(checkpointing)
        x = [pictures(seed).requires_grad_() for seed in range(3)]
        outputs = [model(x[i], route=route) for i, route in enumerate(ROUTES)]
        middle = state(model)
        torch.cat(outputs).pow(3).sum().backward()
        assert same(middle, state(model))
        gradients = {k: p.grad for k, p in model.named_parameters() if p.grad is not None}
        found.append((gradients, state(model), [picture.grad for picture in x]))
    assert same(found[0][0], found[1][0])
    assert same(found[0][1], found[1][1])
    assert all(torch.equal(a, b) for a, b in zip(found[0][2], found[1][2], strict=True))
    counts = [v for k, v in found[1][1].items() if k.endswith("num_batches_tracked")]
    assert all(count == 1 for count in counts)


def test_the_state_dict_round_trip(family: tuple[Embedder, str], pictures: Pictures) -> None:
    embedder, layers = family
    stock = list(embedder.state_dict())
    other = copy.deepcopy(embedder)
    model = routed(embedder, layers, noise=0.1).eval()
    found = model.state_dict()
    private = [slot.key for slot in model.slots]
    assert list(found)[: len(stock)] == stock
    assert set(list(found)[len(stock) :]) == {f"sets.{r}.{k}" for r in "ab" for k in private}
    second = routed(other, layers).eval()
    second.load_state_dict(found)
    for route in ROUTES:
        assert torch.equal(model(pictures(0), route=route), second(pictures(0), route=route))
    assert same(state(model), state(second))
    with pytest.raises(RuntimeError, match="sets"):
        second.load_state_dict({k: v for k, v in found.items() if not k.startswith("sets.a")})


@pytest.mark.parametrize("name", ["test_efficientnet", "test_vit", "regnetx_002"])
def test_merge_gives_what_timm_loads_strictly(
    embed: Callable[[str], Embedder], pictures: Pictures, name: str
) -> None:
    spec = f"timm:{name},size=32" if name == "test_vit" else f"timm:{name}"
    model = routed(embed(spec), "ln" if name == "test_vit" else "bn", noise=0.2).eval()
    plain = model.merge("b")
    fixed = {"img_size": 32} if name == "test_vit" else {}
    stock = timm.create_model(name, num_classes=0, **fixed).eval()
    stock.load_state_dict(plain.state_dict())
    x = pictures(0)
    wanted = torch.nn.functional.normalize(stock((x - plain.mean) / plain.std))
    assert torch.equal(plain(x), wanted)
    assert torch.equal(model(x, route="b"), wanted)
    assert not torch.equal(model(x, route="main"), wanted)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.zero_()
    assert torch.equal(model(x, route="b"), wanted)
