"""Contexts, passes that remember their route, and what is refused meanwhile."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from dmltk import models, norms
from dmltk.errors import DmltkError, UserError
from dmltk.models import Embedder
from dmltk.norms import RoutedEmbedder
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Pictures = Callable[[int], Tensor]
ROUTES = ["main", "a", "b"]


@pytest.fixture
def model(embed: Callable[[str], Embedder]) -> RoutedEmbedder:
    """A small model with three different routes, in eval mode."""
    return norms.apply("kway", embed("smallconv:dim=8"), ROUTES, noise=0.3).eval()


def tensors(model: RoutedEmbedder) -> list[int]:
    return [id(t) for t in (*model.embedder.parameters(), *model.embedder.buffers())]


def test_routes_differ_and_a_pass_without_one_stays_in_the_active(
    model: RoutedEmbedder, pictures: Pictures
) -> None:
    z = {route: model(pictures(0), route=route) for route in ROUTES}
    assert len({tuple(v.flatten().tolist()) for v in z.values()}) == 3
    assert torch.equal(model(pictures(0)), z["main"])
    with model.route("a"):
        assert torch.equal(model(pictures(0)), z["a"])
        with model.route("b"):
            assert torch.equal(model(pictures(0)), z["b"])
            assert torch.equal(model(pictures(0), route="main"), z["main"])
            assert torch.equal(model(pictures(0)), z["b"])
        assert torch.equal(model(pictures(0)), z["a"])
    assert torch.equal(model(pictures(0)), z["main"])


def test_the_view_of_a_route_is_a_module_that_holds_the_model(
    model: RoutedEmbedder, pictures: Pictures
) -> None:
    view = model.at("a")
    assert torch.equal(view(pictures(0)), model(pictures(0), route="a"))
    assert model in list(view.modules())
    assert {id(p) for p in view.parameters()} == {id(p) for p in model.parameters()}
    view.train()
    assert model.embedder.backbone[1].training
    found = model.eval().at("b", heads=("embed",))(pictures(0))
    assert list(found) == ["embed"]
    assert torch.equal(found["embed"], model(pictures(0), route="b"))
    twin = copy.deepcopy(view)
    assert torch.equal(twin(pictures(0)), view.eval()(pictures(0)))
    assert twin.routed is not model


def test_unknown_routes_are_refused(model: RoutedEmbedder, pictures: Pictures) -> None:
    for use in (
        lambda: model(pictures(0), route="mainn"),
        lambda: model.at("mainn"),
        lambda: model.merge("mainn"),
        lambda: model.route("mainn").__enter__(),
    ):
        with pytest.raises(UserError, match="unknown route 'mainn'; did you mean 'main'"):
            use()


@pytest.fixture(scope="module")
def nested() -> RoutedEmbedder:
    """One model for all examples of the test below."""
    return norms.apply("kway", models.build("smallconv"), ["a", "b"])


@given(
    nest=st.recursive(
        st.none(), lambda inner: st.lists(st.tuples(st.sampled_from("mab!"), inner), max_size=3)
    )
)
def test_any_nest_of_contexts_ends_at_home(nested: RoutedEmbedder, nest: object) -> None:
    before = tensors(nested)

    def walk(part: object) -> None:
        here = tensors(nested)
        for name, inner in part or ():  # type: ignore[attr-defined]
            try:
                with nested.route("main" if name in "m!" else name):
                    walk(inner)
                    if name == "!":
                        raise KeyError
            except KeyError:
                pass
            assert tensors(nested) == here

    walk(nest)
    assert tensors(nested) == before


def test_an_exception_in_a_pass_leaves_everything_at_home(
    model: RoutedEmbedder, pictures: Pictures
) -> None:
    before = tensors(model)
    with pytest.raises(UserError):
        model(pictures(0)[:, :2], route="a")
    assert tensors(model) == before


def test_what_would_mix_sets_is_refused_within_a_route(model: RoutedEmbedder) -> None:
    view = model.at("a")
    state = model.state_dict()
    with model.route("a"):
        for use in (
            model.state_dict,
            view.state_dict,
            model.double,
            lambda: view.to("cpu"),
            lambda: copy.deepcopy(model),
            lambda: pickle.dumps(view),
            lambda: model.load_state_dict(state),
            lambda: model.merge("b"),
        ):
            with pytest.raises(DmltkError, match="within route 'a'"):
                use()
    assert model.state_dict().keys() == view.routed.state_dict().keys()
    assert model.double()(torch.rand(2, 3, 9, 9)).dtype == torch.float64
    assert all(t.dtype == torch.float64 for t in model.sets.parameters())


def test_a_copy_and_a_pickle_are_independent(model: RoutedEmbedder, pictures: Pictures) -> None:
    wanted = model(pictures(0), route="a")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            for parameter in twin.sets.parameters():
                parameter.zero_()
        assert not torch.equal(twin(pictures(0), route="a"), wanted)
    assert torch.equal(model(pictures(0), route="a"), wanted)


def test_nested_in_another_module_the_state_dict_keeps_its_names(model: RoutedEmbedder) -> None:
    outer = nn.ModuleDict({"model": model})
    found = outer.state_dict()
    assert set(found) == {f"model.{key}" for key in model.state_dict()}
    outer.load_state_dict(found)


def test_without_gradients_nothing_is_left_on_the_output(
    model: RoutedEmbedder, pictures: Pictures
) -> None:
    with torch.no_grad():
        assert model(pictures(0), route="a").grad_fn is None
    with torch.inference_mode():
        assert model(pictures(0), route="a").is_inference()


def test_after_a_backward_everything_is_where_it_was(
    model: RoutedEmbedder, pictures: Pictures
) -> None:
    home = tensors(model)
    model.train()
    z = model(pictures(0), route="a")
    with model.route("b"):
        before = tensors(model)
        z.pow(3).sum().backward(retain_graph=True)
        assert tensors(model) == before
    z.pow(3).sum().backward()
    assert tensors(model) == home


class Dies(torch.autograd.Function):
    """A backward that fails."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        raise KeyError("died")


@pytest.mark.parametrize("within", [None, "b"])
def test_a_backward_that_dies_is_healed_at_the_next_use(
    model: RoutedEmbedder, pictures: Pictures, within: str | None
) -> None:
    wanted = {route: model(pictures(0), route=route).detach() for route in ROUTES}
    home = tensors(model)
    x = pictures(0).requires_grad_()
    z = model(Dies.apply(x), route="a")
    if within is None:
        with pytest.raises(KeyError, match="died"):
            z.sum().backward()
        assert tensors(model) != home
        assert torch.equal(model(pictures(0)), wanted["main"])
    else:
        with model.route(within):
            with pytest.raises(KeyError, match="died"):
                z.sum().backward()
            assert torch.equal(model(pictures(0)), wanted[within])
    assert tensors(model) == home
    with pytest.raises(KeyError, match="died"):
        model(Dies.apply(x), route="a").sum().backward()
    assert len(model.state_dict()) == len(copy.deepcopy(model).state_dict())
    assert tensors(model) == home


def test_a_backward_that_dies_while_recomputing_leaves_no_statistic(
    embed: Callable[[str], Embedder], pictures: Pictures
) -> None:
    embedder = embed("timm:resnet10t,dim=8,checkpointing=true")
    model = norms.apply("kway", embedder, ROUTES).train()
    z = model(Dies.apply(pictures(0).requires_grad_()), route="a")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(KeyError, match="died"):
        z.sum().backward()
    after = model.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())


@pytest.mark.parametrize(("reentrant", "explicit"), [(False, False), (False, True), (True, True)])
def test_a_whole_pass_may_be_recomputed(
    model: RoutedEmbedder, pictures: Pictures, reentrant: bool, explicit: bool
) -> None:
    x = pictures(0).requires_grad_()
    gradients = []
    for again in (False, True):
        with model.route("main" if explicit else "a"):
            use = (lambda p: model(p, route="a")) if explicit else model
            z = checkpoint(use, x, use_reentrant=reentrant) if again else use(x)
        loss = z.pow(3).sum()
        x.grad = None
        loss.backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def test_heads_of_one_pass_remember_one_route(
    embed: Callable[[str], Embedder], pictures: Pictures
) -> None:
    embedder = embed("timm:resnet10t,dim=8,checkpointing=true")
    embedder.add_head("proj", dim=4, hidden=8, bn=True)
    found = []
    for checkpointing in (True, False):
        model = norms.apply("kway", copy.deepcopy(embedder), ROUTES, noise=0.2).train()
        model.embedder.backbone.set_grad_checkpointing(checkpointing)
        z = [model(pictures(i), route=r, heads=("embed", "proj")) for i, r in enumerate(ROUTES)]
        (z[1]["proj"].pow(3).sum() + z[2]["embed"].pow(3).sum() + z[0]["proj"].sum()).backward()
        found.append({k: p.grad for k, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][k], found[1][k]) for k in found[0])
    assert any(".proj." in k and k.startswith("sets.a") for k in found[0])


def test_a_second_order_gradient_passes_through(model: RoutedEmbedder, pictures: Pictures) -> None:
    plain = model.merge("a")
    x = pictures(0).requires_grad_()
    second = []
    for use in (model.at("a"), plain):
        (first,) = torch.autograd.grad(use(x).pow(3).sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.pow(2).sum(), x)[0])
    assert torch.allclose(*second)
