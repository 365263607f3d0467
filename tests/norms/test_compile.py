"""A compiled routed embedder: every route is its own, whenever and wherever it is chosen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dmltk import norms
from dmltk.errors import UserError
from dmltk.models import Embedder
from dmltk.norms import RoutedEmbedder
from torch import Tensor, nn

Pictures = Callable[[int], Tensor]
Passes = Callable[[RoutedEmbedder], list[Tensor]]
ORDER = ["main", "a", "b", "a", "main"]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No graph of another test is found again."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def build(embed: Callable[[str], Embedder]) -> Callable[..., RoutedEmbedder]:
    """A routed embedder whose routes differ; each call gives the same."""

    def built(spec: str = "smallconv:dim=8", layers: str = "bn") -> RoutedEmbedder:
        return norms.apply("kway", embed(spec), ["a", "b"], noise=0.3, layers=layers)

    return built


def plainly(model: RoutedEmbedder, x: list[Tensor]) -> list[Tensor]:
    return [model(x[i % 3], route=route) for i, route in enumerate(ORDER)]


def whole(model: RoutedEmbedder, x: list[Tensor]) -> list[Tensor]:
    use = torch.compile(model, backend="eager")
    return [use(x[i % 3], route=route) for i, route in enumerate(ORDER)]


def the_embedder(model: RoutedEmbedder, x: list[Tensor]) -> list[Tensor]:
    model.embedder.compile(backend="eager")
    return plainly(model, x)


def views(model: RoutedEmbedder, x: list[Tensor]) -> list[Tensor]:
    use = {route: torch.compile(model.at(route), backend="eager") for route in model.routes}
    return [use[route](x[i % 3]) for i, route in enumerate(ORDER)]


def within_contexts(model: RoutedEmbedder, x: list[Tensor]) -> list[Tensor]:
    use = torch.compile(model, backend="eager")
    found = []
    for i, route in enumerate(ORDER):
        with model.route(route):
            found.append(use(x[i % 3]))
    return found


def switching_inside(model: RoutedEmbedder, x: list[Tensor]) -> list[Tensor]:
    @torch.compile(backend="eager")
    def use(first: Tensor, second: Tensor, third: Tensor) -> tuple[Tensor, ...]:
        begun = model(first), model(second, route="a"), model(third, route="b")
        with model.route("a"):
            return *begun, model(first), model(second, route="main")

    return list(use(*x))


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


WAYS = [
    (whole, True),
    (the_embedder, True),
    (the_embedder, False),
    *(pytest.param(w, True, marks=pytest.mark.slow) for w in (views, within_contexts)),
    pytest.param(switching_inside, True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("way", "mode"), WAYS)
def test_compiled_routes_are_the_uncompiled_ones(
    build: Callable[..., RoutedEmbedder], pictures: Pictures, way: Any, mode: bool
) -> None:
    x = [pictures(seed) for seed in range(3)]
    plain, compiled = build().train(mode), build().train(mode)
    for _ in range(2):
        wanted, found = plainly(plain, x), way(compiled, x)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
        assert len({z[0, 0].item() for z in found[:3]}) == 3
        for model, outputs in ((plain, wanted), (compiled, found)):
            model.zero_grad()
            torch.cat(outputs).pow(3).sum().backward()
        assert same(gradients(plain), gradients(compiled))
        assert same(state(plain), state(compiled))


@pytest.mark.slow
def test_a_compiled_transformer_that_recomputes_keeps_its_routes(
    build: Callable[..., RoutedEmbedder], pictures: Pictures
) -> None:
    x = [pictures(seed) for seed in range(3)]
    found = []
    for way in (plainly, the_embedder):
        model = build("timm:test_vit,size=32,dim=8,checkpointing=true", "ln").train()
        torch.cat(way(model, x)).pow(3).sum().backward()
        found.append(gradients(model))
    assert same(*found)


def test_one_graph_of_the_embedder_serves_every_route(
    build: Callable[..., RoutedEmbedder], pictures: Pictures
) -> None:
    graphs = []

    def counting(graph: Any, inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    model = build().eval()
    model.embedder.compile(backend=counting)
    for route in ORDER:
        model(pictures(0), route=route)
    assert len(graphs) == 1


def test_a_graph_sees_tensors_that_changed_after_it(
    build: Callable[..., RoutedEmbedder], pictures: Pictures
) -> None:
    model = build().eval()
    use = torch.compile(model, backend="eager")
    plain = copy.deepcopy(model)
    before = {route: use(pictures(0), route=route).detach() for route in model.routes}
    changed = {k: v * 1.5 if v.is_floating_point() else v for k, v in state(model).items()}
    for change in (
        lambda m: [p.data.add_(0.1 * p.grad.sign()) for p in m.parameters() if p.grad is not None],
        lambda m: m.load_state_dict(changed),
    ):
        for one, act in ((model, use), (plain, plain)):
            act(pictures(0), route="a").pow(3).sum().backward()
            change(one)
        for route in model.routes:
            found = use(pictures(0), route=route)
            assert torch.equal(found, plain(pictures(0), route=route))
            assert not torch.equal(found, before[route])


def test_a_compiled_backward_that_dies_is_healed(
    build: Callable[..., RoutedEmbedder], pictures: Pictures
) -> None:
    model = build().eval()
    wanted = {route: model(pictures(0), route=route).detach() for route in model.routes}
    use = torch.compile(model, backend="eager")
    for next_route in ("main", "b"):
        x = pictures(0).requires_grad_()
        x.register_hook(lambda gradient: [][1])
        with pytest.raises(IndexError):
            use(x, route="a").sum().backward()
        assert torch.equal(use(pictures(0), route=next_route), wanted[next_route])
    assert same(state(model), state(build()))


def test_an_unknown_route_is_refused_by_a_compiled_model(
    build: Callable[..., RoutedEmbedder], pictures: Pictures
) -> None:
    with pytest.raises(UserError, match="unknown route 'c'"):
        torch.compile(build(), backend="eager")(pictures(0), route="c")


def test_a_copy_of_a_compiled_model_computes_with_its_own_tensors(
    build: Callable[..., RoutedEmbedder], pictures: Pictures
) -> None:
    model = build().eval()
    model.compile(backend="eager")
    wanted = {route: model(pictures(0), route=route).detach() for route in model.routes}
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(pictures(0), route="a").any()
    for route in model.routes:
        assert torch.equal(model(pictures(0), route=route), wanted[route])
        assert torch.equal(model.merge(route)(pictures(0)), wanted[route])


@pytest.mark.parametrize("name", ["shared", "dual", "kway"])
def test_a_compiled_embedder_is_refused_before_its_keys_are_lost(
    embed: Callable[[str], Embedder], name: str
) -> None:
    compiled = torch.compile(embed("smallconv"), backend="eager")
    with pytest.raises(UserError, match="is compiled already; give it routes first"):
        norms.apply(name, compiled, ["a"])
