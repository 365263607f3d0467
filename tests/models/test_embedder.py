"""The embedder: stock keys, one pass for all heads, and pictures as they come."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from dmltk import models
from dmltk.errors import DmltkError, PluginError, UserError
from dmltk.models import Embedder, Head, Source, wrap
from torch import Tensor, nn

NAMES = ["test_efficientnet", "test_vit", "test_convnext", "resnet10t", "mobilenetv3_small_050"]


def pictures(size: int = 32, channels: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(4, channels, size, size, generator=torch.Generator().manual_seed(seed))


class Maps(nn.Module):
    """A backbone that returns what it is told to."""

    def __init__(self, give: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.give = give

    def forward(self, x: Tensor) -> Any:
        return self.give(self.conv(x))


@pytest.mark.parametrize("name", NAMES)
def test_an_embedding_is_the_stock_models_feature_of_normalized_pictures(name: str) -> None:
    embedder = models.build(f"timm:{name},size=64,seed=0,unit=false").eval()
    fixed = {"img_size": 64} if name == "test_vit" else {}
    stock = timm.create_model(name, num_classes=0, **fixed).eval()
    stock.load_state_dict(embedder.state_dict())
    mean, std = (
        torch.tensor(stock.pretrained_cfg[key]).view(1, 3, 1, 1) for key in ("mean", "std")
    )
    x = pictures(64)
    assert torch.equal(embedder(x), stock((x - mean) / std))
    assert embedder.num_features == embedder.embedding_size == stock((x - mean) / std).shape[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_state_dict_has_stock_keys_in_stock_order_and_the_heads(name: str) -> None:
    embedder = models.build(f"timm:{name},dim=7,hidden=3")
    stock = list(timm.create_model(name, num_classes=0).state_dict())
    heads = [f"embed.{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")]
    assert list(embedder.state_dict()) == stock + heads


def test_a_stock_state_dict_and_the_heads_load_strictly_nested_too() -> None:
    first, second = (models.build("smallconv:dim=6", seed=seed) for seed in (1, 2))
    assert not torch.equal(first(pictures()), second(pictures()))
    holder = nn.ModuleDict({"a": second, "b": nn.Linear(2, 2)})
    loaded = {**{f"a.{k}": v for k, v in first.state_dict().items()}}
    loaded |= {f"b.{k}": v for k, v in holder["b"].state_dict().items()}
    holder.load_state_dict(loaded)
    assert torch.equal(first.eval()(pictures()), second.eval()(pictures()))
    assert set(holder.state_dict()) == set(loaded)
    with pytest.raises(RuntimeError, match="embed"):
        first.load_state_dict({k: v for k, v in first.state_dict().items() if "embed" not in k})


def test_a_backbone_with_parts_named_like_the_embedders_keeps_its_keys() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.heads = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.heads(self.backbone(x))

    embedder = wrap(Odd)(dim=2)
    assert list(embedder.state_dict()) == [*Odd().state_dict(), "embed.0.weight", "embed.0.bias"]
    embedder.load_state_dict(copy.deepcopy(embedder).state_dict())


def test_heads_come_from_one_backbone_pass() -> None:
    embedder = models.build("smallconv:dim=6,seed=0").eval()
    embedder.add_head("proj", dim=4, hidden=8, bn=True, pool="avgmax")
    embedder.add_head("raw", unit=False, pool="max")
    embedder.eval()
    passes = []
    embedder.backbone.register_forward_hook(lambda *_: passes.append(1))
    x = pictures()
    found = embedder(x, heads=("embed", "proj", "raw"))
    assert len(passes) == 1
    assert list(found) == ["embed", "proj", "raw"]
    features = embedder.backbone((x - 0.5) / 0.25)
    assert torch.equal(found["raw"], features.amax((2, 3)))
    both = features.mean((2, 3)) + features.amax((2, 3))
    layers = embedder.heads["proj"]
    hidden = F.relu(layers[1](layers[0](both)))
    assert torch.allclose(found["proj"], F.normalize(layers[3](hidden)), atol=1e-6)
    assert torch.equal(found["embed"], embedder(x))
    assert list(embedder.state_dict())[-1] == "proj.3.bias"


def test_embeddings_have_unit_length_unless_told() -> None:
    x = pictures()
    assert torch.allclose(models.build("smallconv:dim=6")(x).norm(dim=1), torch.ones(4))
    loose = models.build("smallconv:dim=6,unit=false")(x).norm(dim=1)
    assert not torch.allclose(loose, torch.ones(4), atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("given", [torch.float32, torch.float64])
def test_pictures_are_cast_at_the_door(dtype: torch.dtype, given: torch.dtype) -> None:
    embedder = models.build("smallconv:dim=6").to(dtype).eval()
    x = pictures().to(given).requires_grad_()
    z = embedder(x)
    assert z.dtype == dtype
    (gradient,) = torch.autograd.grad(z[:, 0].sum(), x)
    assert gradient.dtype == given


def test_under_autocast_the_embedding_keeps_the_backbones_type() -> None:
    embedder = models.build("smallconv:dim=6,seed=0").eval()
    with torch.autocast("cpu", torch.bfloat16):
        z = embedder(pictures())
    assert z.dtype == torch.float32
    assert torch.allclose(z.norm(dim=1), torch.ones(4), atol=1e-6)


def test_one_channel_is_repeated_and_others_are_refused() -> None:
    embedder = models.build("smallconv:dim=6").eval()
    x = pictures(channels=1)
    assert torch.equal(embedder(x), embedder(x.repeat(1, 3, 1, 1)))
    with pytest.raises(UserError, match=r"\(N,3,H,W\)"):
        embedder(pictures(channels=4))
    with pytest.raises(UserError, match=r"\(N,3,H,W\)"):
        embedder(pictures()[0])


@pytest.mark.parametrize(
    "spec", ["timm:test_efficientnet,dim=4", "timm:test_vit,size=32", "smallconv"]
)
def test_a_copy_is_independent(spec: str) -> None:
    embedder = models.build(spec).eval()
    twin = copy.deepcopy(embedder)
    before = embedder(pictures())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(embedder(pictures()), before)
    assert not torch.equal(twin(pictures()), before)
    ours, theirs = ({id(p) for p in e.parameters()} for e in (embedder, twin))
    assert not ours & theirs


def test_the_mean_is_not_in_the_state_dict_and_moves_with_the_module() -> None:
    embedder = models.build("smallconv:dim=6").double()
    assert embedder.mean.dtype == torch.float64
    assert not {"mean", "std"} & set(embedder.state_dict())


def test_names_that_collide_are_refused() -> None:
    embedder = models.build("timm:resnet10t")
    for name in ("embed", "layer1", "pop", "a.b"):
        with pytest.raises(UserError, match="cannot be called"):
            embedder.add_head(name, dim=2)
    with pytest.raises(UserError, match=r"unknown head 'emebd'.*did you mean 'embed'"):
        embedder(pictures(), heads=("emebd",))


@pytest.mark.parametrize(
    ("args", "message"), [({"hidden": 3}, "needs dim"), ({"bn": True}, "needs")]
)
def test_a_head_that_makes_no_sense_is_refused(args: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Head(8, **args)


def test_a_head_added_in_eval_mode_is_in_eval_mode() -> None:
    embedder = models.build("smallconv").eval()
    embedder.add_head("proj", dim=2, hidden=4, bn=True)
    assert not any(part.training for part in embedder.modules())


@pytest.mark.parametrize(
    ("give", "output"),
    [
        (lambda f: {"map": f, "n": 1}, "map"),
        (lambda f: (1, f), "1"),
        (lambda f: [f, None], "-2"),
    ],
)
def test_output_picks_from_what_a_model_returns(give: Any, output: str) -> None:
    embedder = wrap(lambda: Maps(give))(output=output, seed=1)
    plain = wrap(lambda: Maps(lambda f: f))(seed=1)
    assert torch.equal(embedder(pictures()), plain(pictures()))
    with pytest.raises(UserError, match=r"returns a (dict of map, n|tuple of 2|list of 2).*put="):
        wrap(lambda: Maps(give))()
    with pytest.raises(UserError, match="output=nothing is not in"):
        wrap(lambda: Maps(give))(output="nothing")


def test_flat_features_are_taken_and_tokens_are_named() -> None:
    flat = wrap(lambda: Maps(lambda f: f.flatten(2).mean(2)))
    assert flat().embedding_size == 5
    with pytest.raises(UserError, match="pool=max needs a feature map"):
        flat(pool="max")(pictures())
    with pytest.raises(UserError, match=r"\(1, 3844, 5\)"):
        wrap(lambda: Maps(lambda f: f.flatten(2).transpose(1, 2)))()


def test_a_dry_pass_leaves_modes_statistics_and_random_state() -> None:
    inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4).eval())
    state = torch.get_rng_state()
    embedder = Embedder(Source(inner))
    assert [part.training for part in inner] == [True, True, False]
    assert inner[1].num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert embedder.embedding_size == 4


def test_closures_over_the_module_are_refused() -> None:
    inner = nn.Conv2d(3, 4, 3)
    with pytest.raises(UserError, match="closures"):
        Source(inner, features=lambda x: inner(x))


def test_a_model_too_deep_for_the_probe_says_so() -> None:
    with pytest.raises(DmltkError, match="size="):
        wrap(lambda: nn.Conv2d(3, 4, 99))()
    assert wrap(lambda: nn.Conv2d(3, 4, 99))(size=100).size == 100


def test_a_source_must_give_a_model() -> None:
    with pytest.raises(PluginError, match="gave a int"):
        wrap(lambda: 3)()
