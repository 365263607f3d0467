"""Conversion to synchronised batch norms, by torch and by timm, before routes and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm.layers
import torch
from dmltk import norms
from dmltk.errors import UserError
from dmltk.models import Embedder
from torch import Tensor, nn

Pictures = Callable[[int], Tensor]
ROUTES = ["main", "a", "b"]
CONVERT: dict[str, Any] = {
    "torch": nn.SyncBatchNorm.convert_sync_batchnorm,
    "timm": timm.layers.convert_sync_batchnorm,
}
PLAIN = ["timm:resnet10t,dim=8", "timm:levit_128s,size=32,dim=8"]
WITH_ACTIVATION = ["timm:test_efficientnet,dim=8", "timm:regnetx_002,dim=8"]


def synchronized(module: nn.Module) -> int:
    return sum(isinstance(part, nn.SyncBatchNorm) for part in module.modules())


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("by", "spec"),
    [(by, spec) for by in CONVERT for spec in PLAIN] + [("timm", spec) for spec in WITH_ACTIVATION],
)
def test_routes_of_a_converted_model_are_those_of_the_unconverted(
    embed: Callable[[str], Embedder], pictures: Pictures, by: str, spec: str, first: bool
) -> None:
    wanted = norms.apply("kway", embed(spec), ROUTES, noise=0.2).eval()
    embedder = embed(spec)
    if first:
        embedder = CONVERT[by](embedder)
    model = norms.apply("kway", embedder, ROUTES, noise=0.2).eval()
    if not first:
        model = CONVERT[by](model).eval()
    assert synchronized(model) == sum(slot.name == "running_var" for slot in wanted.slots)
    assert model.state_dict().keys() == wanted.state_dict().keys()
    for route in ROUTES:
        x = pictures(0).requires_grad_()
        found = [use(x, route=route) for use in (model, wanted)]
        assert torch.equal(*found)
        assert torch.equal(*(torch.autograd.grad(z.pow(3).sum(), x)[0] for z in found))
    plain = embed(spec).eval()
    plain.load_state_dict(model.merge("b").state_dict())
    assert torch.equal(plain(x), found[0])


@pytest.mark.parametrize("name", ["shared", "dual", "kway"])
@pytest.mark.parametrize("spec", WITH_ACTIVATION)
def test_a_conversion_that_lost_an_activation_is_refused(
    embed: Callable[[str], Embedder], spec: str, name: str
) -> None:
    first = next(
        path
        for path, part in embed(spec).named_modules()
        if isinstance(part, timm.layers.BatchNormAct2d)
    )
    message = rf"'{first}' lost its activation.*timm\.layers\.convert_sync_batchnorm"
    embedder = CONVERT["torch"](embed(spec))
    with pytest.raises(UserError, match=message):
        norms.apply(name, embedder, ["a"])
    model = norms.apply(name, embed(spec), ["a"])
    with pytest.raises(UserError, match=message):
        CONVERT["torch"](nn.Sequential(model))
