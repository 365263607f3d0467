"""Embedders of different kinds, built once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest
import timm
import torch
from dmltk import models
from dmltk.models import Embedder
from torch import Tensor, nn

FAMILIES = {
    "test_efficientnet": ("timm:test_efficientnet,dim=8", "bn"),
    "levit_128s": ("timm:levit_128s,size=32,dim=8", "bn"),
    "densenet": ("densenet", "bn"),
    "regnetx_002": ("timm:regnetx_002,dim=8", "bn"),
    "test_vit": ("timm:test_vit,size=32,dim=8", "ln"),
    "resnet10t": ("timm:resnet10t,dim=8,checkpointing=true", "bn"),
}


def densenet() -> nn.Module:
    """A densenet of few layers, as a bare module."""
    sizes = {"growth_rate": 8, "block_config": (2, 2, 2)}
    module: nn.Module = timm.create_model("densenet121", num_classes=0, **sizes)
    return module


@cache
def _built(spec: str) -> Embedder:
    if spec == "densenet":
        return models.wrap(densenet)(dim=8, seed=0)
    return models.build(spec, seed=0)


@pytest.fixture
def embed() -> Callable[[str], Embedder]:
    """A fresh embedder for a spec."""
    return lambda spec: copy.deepcopy(_built(spec))


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> tuple[Embedder, str]:
    """An embedder of a family of models, and the kind of its normalisers."""
    spec, layers = FAMILIES[request.param]
    return copy.deepcopy(_built(spec)), layers


@pytest.fixture
def pictures() -> Callable[[int], Tensor]:
    """Three pictures, drawn from a seed."""
    return lambda seed=0: torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
