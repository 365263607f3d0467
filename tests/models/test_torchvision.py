"""Models of torchvision: stock keys, stock features, strict weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.models as zoo
from dmltk import models, registry
from dmltk.errors import DmltkError, UserError
from safetensors.torch import save_file
from torch import nn

SMALL = ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1"]
SLOW = ["densenet121", "efficientnet_b0", "regnet_y_400mf", "vgg11_bn", "alexnet", "swin_t"]
SLOW += ["convnext_tiny", "vit_b_32", "maxvit_t", "googlenet", "inception_v3", "mobilenet_v2"]
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def before_the_last_layer(stock: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
    """What the last layer of a stock model is given, before any dropout, averaged over places."""
    layers = [m for m in stock.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    seen: list[torch.Tensor] = []
    layers[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    stock(pictures)
    return seen[0].mean((2, 3)) if seen[0].ndim == 4 else seen[0]


def compare(name: str) -> None:
    embedder = models.build(f"torchvision:{name},unit=false,seed=0").eval()
    size = embedder.size or 0
    inner = {} if name != "inception_v3" and name != "googlenet" else {"init_weights": False}
    stock = zoo.get_model(name, weights=None, **inner).eval()
    missing, left = stock.load_state_dict(embedder.state_dict(), strict=False)
    spare = embedder.source.classifier
    assert not left
    assert all(key.startswith(tuple(f"{part}." for part in spare)) for key in missing)
    if inner:
        stock.transform_input = True
    x = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        slow = before_the_last_layer(stock, (x - MEAN) / STD)
        found = embedder(x)
    assert found.shape == (1, embedder.num_features)
    assert torch.allclose(found, slow, atol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_an_embedding_is_what_the_stock_models_last_layer_is_given(name: str) -> None:
    compare(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_so_it_is_for_every_other_family(name: str) -> None:
    compare(name)


def test_a_feature_map_that_is_averaged_can_be_pooled_otherwise() -> None:
    embedder = models.build("torchvision:resnet18,pool=avgmax,unit=false,size=64,dim=0").eval()
    net, x = embedder.backbone, torch.rand(2, 3, 64, 96)
    z = net.maxpool(net.relu(net.bn1(net.conv1((x - MEAN) / STD))))
    z = net.layer4(net.layer3(net.layer2(net.layer1(z))))
    assert torch.allclose(embedder(x), z.mean((2, 3)) + z.amax((2, 3)), atol=1e-5)
    with pytest.raises(UserError, match="no pool=max, only avg"):
        models.build("torchvision:mobilenet_v3_small,pool=max,size=64")


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_a_copy_uses_its_own_tensors(name: str) -> None:
    embedder = models.build(f"torchvision:{name},size=32").eval()
    twin, x = copy.deepcopy(embedder), torch.rand(2, 3, 32, 32)
    before = embedder(x)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(embedder(x), before)
    assert not torch.equal(twin(x), before)


def test_a_stock_file_loads_and_nothing_else_may_be_left(tmp_path: Path) -> None:
    state = zoo.resnet18(num_classes=7).state_dict()
    torch.save(state, tmp_path / "stock.pth")
    embedder = models.build("torchvision:resnet18,dim=5", weights=str(tmp_path / "stock.pth"))
    found = embedder.state_dict()
    assert all(torch.equal(found[key], value) for key, value in state.items() if "fc." not in key)
    assert embedder.embedding_size == 5
    save_file(state | {"layer9.weight": torch.ones(1)}, tmp_path / "odd.safetensors")
    with pytest.raises(UserError, match=r"the model has no layer9\.weight"):
        models.build("torchvision:resnet18", weights=str(tmp_path / "odd.safetensors"))


def test_size_and_normalisation_are_those_of_the_weights_that_are_named() -> None:
    assert models.build("torchvision:resnet18").size == 224
    embedder = models.build("torchvision:vgg11,tag=IMAGENET1K_V1,size=32")
    assert embedder.size == 32
    assert torch.allclose(embedder.mean, MEAN)
    assert registry.factory("models", "torchvision").train_dim == 128
    with pytest.raises(UserError, match="unknown tag 'IMAGENET1K_V3'.*did you mean"):
        models.build("torchvision:resnet18,tag=IMAGENET1K_V3")


def test_an_unknown_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown torchvision model 'resnet5O'.*did you mean"):
        models.build("torchvision:resnet5O")
    with pytest.raises(UserError, match="unknown torchvision model 'raft_small'"):
        models.build("torchvision:raft_small")
    with pytest.raises(UserError, match="take timm:mnasnet_100"):
        models.build("torchvision:mnasnet0_5")


def test_pretrained_says_what_it_fetches_and_a_failure_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no way there\nmore")

    monkeypatch.setattr("dmltk.models.torchvision.zoo.get_model", broken)
    with (
        pytest.warns(UserWarning, match=r"fetches 'resnet50' from \S+resnet50-0676ba61\.pth \(98"),
        pytest.raises(DmltkError, match=r"cannot be fetched \(no way there\).*weights=FILE"),
    ):
        models.build("torchvision:resnet50,pretrained=true,tag=IMAGENET1K_V1")
