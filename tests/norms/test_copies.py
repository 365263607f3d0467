"""Averaged, copied and saved routed embedders: every set is there, and each is its own."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import norms
from dmltk.models import Embedder
from dmltk.norms import RoutedEmbedder
from safetensors.torch import load_file, save_file
from timm.utils import ModelEmaV3
from torch import Tensor

Pictures = Callable[[int], Tensor]
ROUTES = ["main", "a", "b"]
DECAY = 0.75


def routed(embedder: Embedder, layers: str, noise: float = 0.2) -> RoutedEmbedder:
    return norms.apply("kway", embedder, ROUTES, layers=layers, noise=noise)


def state(model: torch.nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def train(model: RoutedEmbedder, optimizer: torch.optim.Optimizer, x: list[Tensor]) -> None:
    optimizer.zero_grad()
    for pictures, route in zip(x, ROUTES, strict=True):
        model(pictures, route=route).pow(3).sum().backward()
    optimizer.step()


def test_timms_average_is_that_of_every_set(
    family: tuple[Embedder, str], pictures: Pictures
) -> None:
    embedder, layers = family
    model = routed(copy.deepcopy(embedder), layers).train()
    ema = ModelEmaV3(model, decay=DECAY)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wanted = state(model)
    for step in range(2):
        train(model, optimizer, [pictures(3 * step + i) for i in range(3)])
        ema.update(model)
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                wanted[key] = DECAY * wanted[key] + (1 - DECAY) * value
            else:
                wanted[key] = value.clone()
    found = ema.module.state_dict()
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, msg=key)
    for route in "ab":
        moved = [not torch.equal(found[f"sets.{route}.{s.key}"], found[s.key]) for s in model.slots]
        assert sum(moved) > 0.6 * len(moved)
    for route in ROUTES:
        z = ema.module(pictures(0), route=route)
        assert torch.equal(z, ema(pictures(0), route=route))
        assert torch.equal(z, ema.module.merge(route)(pictures(0)))
        assert not torch.equal(z, model.eval()(pictures(0), route=route))


def saved_by_torch(found: dict[str, Tensor], folder: Path) -> Any:
    torch.save(found, folder / "model.pt")
    return torch.load(folder / "model.pt", weights_only=True)


def saved_as_safetensors(found: dict[str, Tensor], folder: Path) -> Any:
    save_file(found, folder / "model.safetensors")
    return load_file(folder / "model.safetensors")


def pickled(found: dict[str, Tensor], folder: Path) -> Any:
    return pickle.loads(pickle.dumps(found))


@pytest.mark.parametrize("through", [saved_by_torch, saved_as_safetensors, pickled])
def test_a_saved_state_dict_gives_every_route_back(
    family: tuple[Embedder, str], pictures: Pictures, tmp_path: Path, through: Any
) -> None:
    stock, layers = family
    model = routed(copy.deepcopy(stock), layers).train()
    for seed, route in enumerate(ROUTES):
        model(pictures(seed), route=route)
    found = model.state_dict()
    again = through(found, tmp_path)
    assert same(again, found)
    twin = routed(copy.deepcopy(stock), layers, noise=0)
    twin.load_state_dict(again)
    for route in ROUTES:
        z = model.eval()(pictures(0), route=route)
        assert torch.equal(twin.eval()(pictures(0), route=route), z)
    stock.load_state_dict(through(model.merge("b").state_dict(), tmp_path))
    assert torch.equal(stock.eval()(pictures(0)), z)


def whole_file(model: RoutedEmbedder) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("through", [copy.deepcopy, whole_file])
def test_a_copy_has_every_set_and_shares_none(
    family: tuple[Embedder, str], pictures: Pictures, through: Any
) -> None:
    embedder, layers = family
    model = routed(embedder, layers).train()
    twin = through(model)
    assert twin.training
    assert same(state(model), state(twin))
    before = state(model)
    train(twin, torch.optim.SGD(twin.parameters(), lr=0.1), [pictures(i) for i in range(3)])
    assert same(state(model), before)
    after = state(twin)
    for prefix in ("", "sets.a.", "sets.b."):
        keys = [prefix + slot.key for slot in model.slots]
        assert any(not torch.equal(before[key], after[key]) for key in keys)
    twin.load_state_dict(before)
    for route in ROUTES:
        z = model.eval()(pictures(0), route=route)
        assert torch.equal(twin.eval()(pictures(0), route=route), z)
