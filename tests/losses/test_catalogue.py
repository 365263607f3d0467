from __future__ import annotations

import inspect

import pytest
import torch
from dmltk import losses, registry
from dmltk.description import describe
from dmltk.losses.pml import LibraryLoss, classes
from pytorch_metric_learning import losses as library
from torch.nn.functional import normalize

from .library import concrete
from .specs import NAMES, OWN, SPECS

CONTEXT = {"num_classes": 10, "embedding_size": 8, "seed": 0}


def test_every_concrete_loss_of_the_library_is_registered_and_no_other() -> None:
    names = {name.removesuffix("Loss").lower() for name in concrete(library)}
    ours = {e.name for e in registry.entries("losses") if e.target.startswith("dmltk.losses.")}
    assert ours - OWN == names and len(names) == 38


@pytest.mark.parametrize("name", [*NAMES, "multiplelosses"])
def test_every_argument_is_explicit_and_described(name: str) -> None:
    factory = registry.factory("losses", name)
    kinds = {p.kind for p in registry.signature(factory).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    found = describe("losses", name)
    assert found.summary and all(parameter.meaning for parameter in found.parameters)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", NAMES)
def test_every_loss_trains_twice(name: str) -> None:
    torch.manual_seed(0)
    loss = losses.build(SPECS[name], context=CONTEXT)
    y = torch.arange(10).repeat_interleave(6)
    for _ in range(2):
        z = normalize(torch.randn(60, 8), dim=1).requires_grad_()
        views = (z, z.flip(1)) if loss.takes == "views" else (z,)
        value = loss(*views, labels=y)
        value.backward()
        assert value.shape == () and value.isfinite()
        assert z.grad is not None and z.grad.isfinite().all() and z.grad.any()


@pytest.mark.parametrize(
    "name", [n for n in NAMES if isinstance(registry.factory("losses", n), LibraryLoss)]
)
def test_signatures_hold_what_the_class_takes_and_nothing_it_refuses(name: str) -> None:
    factory = registry.factory("losses", name)
    chosen = {
        key: p.default
        for key, p in factory.signature_for({}).parameters.items()
        if p.default is not inspect.Parameter.empty
    }
    needed = {"num_classes": 10, "embedding_size": 8}
    needed = {k: v for k, v in needed.items() if k in factory.signature_for({}).parameters}
    factory(**(needed | chosen))


@pytest.mark.parametrize("kind", ["miner", "reducer", "distance", "regularizer"])
def test_parts_are_named_by_the_same_rule(kind: str) -> None:
    expected = {
        "miner": "batchhard",
        "reducer": "avgnonzero",
        "distance": "lp",
        "regularizer": "zeromean",
    }
    assert expected[kind] in classes(kind)
    assert not any(name.startswith("base") for name in classes(kind))
