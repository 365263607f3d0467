"""What every norm strategy must do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from dmltk.errors import UserError
from dmltk.testing import samples
from dmltk.testing.part import Part, Skip

ROUTES = ("main", "a", "b")


def use(part: Part) -> list[Tensor]:
    """A picture's embeddings through each route."""
    _, model = next(_routed(part))
    images = samples.batch().images
    return [model(images, route=route).detach() for route in ROUTES]


def check_main_is_the_model_as_it_was(part: Part) -> None:
    """Route main embeds as the plain embedder does, in training and in evaluation."""
    images = samples.batch().images
    for name, model in _routed(part):
        plain = samples.model(name)
        for mode in (True, False):
            wanted, found = plain.train(mode)(images), model.train(mode)(images)
            assert torch.equal(wanted, found), (
                f"with {name} and training={mode}, route main embeds otherwise than the plain model"
            )
        for key, value in plain.state_dict().items():
            assert torch.equal(model.merge("main").state_dict()[key], value), (
                f"with {name}, a training pass of main leaves another {key} than a plain model's"
            )


def check_every_route_is_there(part: Part) -> None:
    """All routes asked for and `main`; an unknown one is refused with their names."""
    for _, model in _routed(part):
        assert set(model.routes) == set(ROUTES), (
            f"routes {sorted(model.routes)} of {sorted(ROUTES)}"
        )
        try:
            model(samples.batch().images, route="c")
        except UserError as error:
            assert "main" in str(error), "the error of an unknown route names those that are there"
        else:
            raise AssertionError("an unknown route is not refused")


def check_the_map_of_routes_is_the_one_applied(part: Part) -> None:
    """Where a strategy has `map_routes`, it tells the sets that `apply` makes."""
    strategy = part.build()
    if not hasattr(strategy, "map_routes"):
        raise Skip("it tells no map of routes")
    _, model = next(_routed(part))
    told, made = strategy.map_routes(list(ROUTES)), dict(model.routes)
    assert told == made, f"map_routes tells {told} and apply makes {made}"


def check_training_one_route_leaves_the_others_statistics(part: Part) -> None:
    """A training pass through a route changes no route of another set."""
    images = samples.batch().images
    alone = 0
    for name, model in _routed(part):
        before = {route: model.eval()(images, route=route) for route in ROUTES}
        model.train()(images + 1, route="a")
        model.eval()
        for route in ROUTES:
            if model.routes[route] != model.routes["a"]:
                alone += 1
                assert torch.equal(model(images, route=route), before[route]), (
                    f"with {name}, a training pass through route a changes route {route}"
                )
    if not alone:
        raise Skip("all routes share one set")


def check_parameters_are_complete_and_without_doubles(part: Part) -> None:
    """An optimizer sees every tensor that a route trains, once."""
    images = samples.batch().images
    for name, model in _routed(part):
        known = [id(parameter) for parameter in model.parameters()]
        assert len(known) == len(set(known)), f"with {name}, parameters() holds a tensor twice"
        for route in ROUTES:
            model.zero_grad()
            model.train()(images, route=route).pow(3).sum().backward()
            got = [p for p in model.parameters() if p.grad is not None and bool(p.grad.any())]
            assert got, f"with {name}, no parameter gets a gradient through route {route}"


def check_a_joint_loss_is_the_sum_of_its_parts(part: Part) -> None:
    """One backward over all routes gives the gradients of one backward a route."""
    images = samples.batch().images
    for checkpointing in (False, True):
        joint = dict(_routed(part, checkpointing))
        single = dict(_routed(part))
        for name, model in joint.items():
            other = single[name]
            sum(model.train()(images, route=r).pow(3).sum() for r in ROUTES).backward()
            for route in ROUTES:
                other.train()(images, route=route).pow(3).sum().backward()
            pairs = zip(model.named_parameters(), other.parameters(), strict=True)
            for (key, one), two in pairs:
                a, b = (torch.zeros(()) if p.grad is None else p.grad for p in (one, two))
                assert torch.allclose(a, b, atol=1e-5), (
                    f"with {name}, checkpointing={checkpointing}: the gradient of {key} in a joint"
                    " loss is not that of separate ones"
                )
            for key, value in other.state_dict().items():
                assert torch.allclose(model.state_dict()[key], value, atol=1e-6), (
                    f"with {name}, checkpointing={checkpointing}: {key} is updated twice or not"
                )


def check_the_state_comes_back(part: Part) -> None:
    """A state dict loaded into a fresh model gives every route back."""
    images = samples.batch().images
    for name, model in _routed(part):
        for route in ROUTES:
            model.train()(images, route=route)
        fresh = part.build().apply(samples.model(name, seed=1), list(ROUTES[1:])).eval()
        fresh.load_state_dict(model.state_dict())
        for route in ROUTES:
            wanted, found = model.eval()(images, route=route), fresh(images, route=route)
            assert torch.equal(wanted, found), f"with {name}, route {route} does not come back"


def check_a_merged_route_is_a_plain_model(part: Part) -> None:
    """`merge` gives an embedder with the stock keys that embeds as the route does."""
    images = samples.batch().images
    for name, model in _routed(part):
        for route in ROUTES:
            model.train()(images, route=route)
        model.eval()
        stock = list(samples.model(name).state_dict())
        for route in ROUTES:
            plain = model.merge(route).eval()
            assert torch.equal(plain(images), model(images, route=route)), (
                f"with {name}, merge('{route}') embeds otherwise than the route"
            )
            assert list(plain.state_dict()) == stock, f"with {name}, merge changes the stock keys"


def check_a_view_of_a_route_is_the_route(part: Part) -> None:
    """`at(route)` is what attacks are handed: a module that embeds as the route does."""
    images = samples.batch().images
    for name, model in _routed(part):
        for route in ROUTES:
            view = model.at(route)
            assert isinstance(view, nn.Module), "at() gives no module"
            assert torch.equal(view(images), model(images, route=route)), (
                f"with {name}, at('{route}') embeds otherwise than the route"
            )


def check_a_model_without_normalisers_is_refused_or_plain(part: Part) -> None:
    """Nothing to select is a UserError that says what would work, or changes nothing."""
    try:
        model = part.build().apply(samples.model("none"), list(ROUTES[1:]))
    except UserError as error:
        assert "--bn" in str(error), "the error does not say what would work (--bn …)"
        return
    images = samples.batch().images
    assert torch.equal(model(images), samples.model("none")(images))


def _routed(part: Part, checkpointing: bool = False) -> Iterator[tuple[str, Any]]:
    """The sample models that the strategy takes, with three routes; one at least."""
    refusals = []
    for name in samples.MODELS:
        plain = samples.model(name, checkpointing=checkpointing)
        try:
            model = part.build().apply(plain, list(ROUTES[1:]))
        except UserError as error:
            refusals.append(str(error))
            continue
        yield name, model.eval()
    assert len(refusals) < len(samples.MODELS), f"it takes none of the sample models: {refusals[0]}"
