"""Which tensors are private, how other sets are born, and which route has which."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import timm.layers
import torch
from dmltk import norms
from dmltk.errors import UserError
from dmltk.models import Embedder, Source
from dmltk.norms import RoutedEmbedder
from dmltk.norms.selection import normalizers
from torch import Tensor, nn

Build = Callable[[str], Embedder]
Pictures = Callable[[int], Tensor]


def test_the_map_of_routes() -> None:
    routes = ["stax", "main", "mtax", "mtax2", "stax"]
    assert norms.build("shared").map_routes(routes) == dict.fromkeys(
        ["main", "stax", "mtax", "mtax2"], "main"
    )
    assert norms.build("dual").map_routes(routes) == {
        "main": "main",
        "stax": "stax",
        "mtax": "stax",
        "mtax2": "stax",
    }
    assert norms.build("kway").map_routes(routes) == {
        name: name for name in ("main", "stax", "mtax", "mtax2")
    }


@pytest.mark.parametrize("name", ["shared", "dual", "kway"])
def test_main_is_always_a_route_and_alone_it_needs_no_set(embed: Build, name: str) -> None:
    model = norms.apply(name, embed("timm:test_vit,size=32"), [])
    assert model.routes == {"main": "main"}
    assert len(model.sets) == len(model.slots) == 0


def test_dual_shares_one_set_among_the_others(embed: Build, pictures: Pictures) -> None:
    model = norms.apply("dual", embed("smallconv"), ["stax", "mtax"], noise=0.5).eval()
    assert list(model.sets) == ["stax"]
    assert torch.equal(model(pictures(0), route="stax"), model(pictures(0), route="mtax"))
    assert not torch.equal(model(pictures(0), route="stax"), model(pictures(0)))


def test_shared_routes_are_one(embed: Build, pictures: Pictures) -> None:
    embedder = embed("smallconv")
    model = norms.apply("shared", embedder, ["stax"]).eval()
    assert model.state_dict().keys() == embedder.state_dict().keys()
    assert torch.equal(model(pictures(0), route="stax"), embedder(pictures(0)))


@pytest.mark.parametrize(
    ("private", "names"),
    [
        ("all", {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}),
        ("affine", {"weight", "bias"}),
        ("stats", {"running_mean", "running_var", "num_batches_tracked"}),
    ],
)
def test_what_is_private(embed: Build, private: str, names: set[str]) -> None:
    model = norms.apply("kway", embed("smallconv"), ["a"], private=private)
    assert {slot.key for slot in model.slots} == {f"{i}.{n}" for i in (1, 5, 9) for n in names}
    assert {k for k in model.state_dict() if k.startswith("sets")} == {
        f"sets.a.{slot.key}" for slot in model.slots
    }


def test_normalizers_inside_heads_are_private_unless_told(embed: Build) -> None:
    for heads in (True, False):
        embedder = embed("smallconv")
        embedder.add_head("proj", dim=2, hidden=4, bn=True)
        model = norms.apply("kway", embedder, ["a"], heads=heads)
        assert any(slot.key == "proj.1.weight" for slot in model.slots) == heads


KINDS: list[tuple[str, Any]] = [
    ("bn", lambda: nn.BatchNorm2d(4)),
    ("bn", lambda: nn.SyncBatchNorm(4)),
    ("bn", lambda: timm.layers.BatchNormAct2d(4)),
    ("ln", lambda: timm.layers.LayerNorm2d(4)),
    ("ln", lambda: timm.layers.RmsNorm2d(4)),
    ("ln", lambda: nn.RMSNorm(4)),
    ("gn", lambda: nn.GroupNorm(2, 4)),
    ("gn", lambda: timm.layers.GroupNormAct(4, num_groups=2)),
    ("all", lambda: timm.layers.EvoNorm2dB0(4)),
    ("all", lambda: timm.layers.EvoNorm2dS0(4)),
    ("all", lambda: timm.layers.FilterResponseNormTlu2d(4)),
    ("all", lambda: nn.InstanceNorm2d(4, affine=True)),
]


@pytest.mark.parametrize(("kind", "make"), KINDS)
def test_each_layer_is_found_by_its_kind_and_by_all(kind: str, make: Any) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), make())
    for layers in ("bn", "ln", "gn", "all"):
        found = normalizers(module, layers, True)  # type: ignore[arg-type]
        assert ("1" in found) == (layers in (kind, "all"))
        assert "0" not in found
    assert not normalizers(nn.Sequential(nn.LayerNorm(4, elementwise_affine=False)), "all", True)


def test_statistics_are_copied_or_reset(embed: Build, pictures: Pictures) -> None:
    embedder = embed("smallconv").train()
    embedder(pictures(0))
    for init in ("copy", "reset"):
        model = norms.apply("kway", copy.deepcopy(embedder), ["a"], init=init)
        for slot in model.slots:
            main, other = (model.state_dict()[p + slot.key] for p in ("", "sets.a."))
            blank = {"running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
            if init == "reset" and slot.name in blank:
                assert not torch.equal(main, other)
                assert (other == blank[slot.name]).all()
            else:
                assert torch.equal(main, other)
                assert main.data_ptr() != other.data_ptr()


def test_noise_moves_the_affine_part_of_the_other_sets_only(embed: Build) -> None:
    embedder = embed("timm:resnet18")
    before = {k: v.clone() for k, v in embedder.state_dict().items()}
    model = norms.apply("kway", embedder, ["a", "b", "c"], noise={"a": 0.1, "c": 0.4})
    after = model.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    moved: dict[str, list[Tensor]] = {"a": [], "b": [], "c": []}
    for slot in model.slots:
        for name, found in moved.items():
            difference = (after[f"sets.{name}.{slot.key}"] - before[slot.key]).flatten()
            if slot.trained:
                found.append(difference)
            else:
                assert not difference.any()
    a, b, c = (torch.cat(found) for found in moved.values())
    assert not b.any()
    assert a.std().item() == pytest.approx(0.1, rel=0.02)
    assert c.std().item() == pytest.approx(0.4, rel=0.02)
    assert abs(torch.corrcoef(torch.stack((a, c)))[0, 1]) < 0.02


def test_noise_follows_its_seed_and_leaves_the_global_state(embed: Build) -> None:
    state = torch.get_rng_state()

    def drawn(seed: int, routes: list[str]) -> Tensor:
        model = norms.build("kway:noise=.1", context={"seed": seed}).apply(
            embed("smallconv"), routes
        )
        return model.state_dict()["sets.a.1.weight"]

    first = drawn(1, ["a"])
    assert torch.equal(first, drawn(1, ["b", "a"]))
    assert not torch.equal(first, drawn(2, ["a"]))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"noise": {"aa": 0.1}}, "unknown route 'aa' in noise; did you mean 'a'"),
        ({"noise": {"main": 0.1}}, "the set 'main' is left as it is"),
        ({"noise": 0.1, "private": "stats"}, "private=stats leaves shared"),
        ({"layers": "ln"}, "this model has no layer norm; use --bn kway:layers=bn"),
        ({"noise": -1}, "noise"),
        ({"layers": "batch"}, "layers"),
    ],
)
def test_what_cannot_be_is_refused(embed: Build, args: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        norms.apply("kway", embed("smallconv"), ["a"], **args)


def test_nothing_to_select_prints_what_would_work(embed: Build) -> None:
    vit = embed("timm:test_vit,size=32")
    with pytest.raises(UserError, match="no batch norm; use --bn dual:layers=ln"):
        norms.apply("dual", vit, ["a"])
    with pytest.raises(
        UserError, match="layer norms have no running statistics; use --bn kway:lay"
    ):
        norms.apply("kway:layers=ln,private=stats", vit, ["a"])
    bare = Embedder(Source(nn.Conv2d(3, 4, 3)))
    with pytest.raises(UserError, match="no normaliser with tensors of its own; use --bn shared"):
        norms.apply("kway", bare, ["a"])
    bare.add_head("proj", dim=3, hidden=2, bn=True)
    with pytest.raises(UserError, match="no batch norm outside its heads; use --bn kway:layers=bn"):
        norms.apply("kway:heads=false", bare, ["a"])


def test_few_normalizers_are_warned_of(embed: Build) -> None:
    mostly_other = embed("timm:test_vit")
    mostly_other.add_head("proj", dim=4, hidden=4, bn=True)
    with pytest.warns(UserWarning, match=r"only 1 of \d+ normaliser layers differ"):
        norms.apply("kway", mostly_other, ["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        norms.apply("kway", embed("timm:resnet10t"), ["a"])
        norms.apply("kway", embed("smallconv"), ["a"])
        norms.apply("shared", embed("smallconv"), ["a"])


@pytest.mark.parametrize("spec", ["kway:layers=ln", "dual:private=affine"])
def test_statistics_that_all_routes_move_are_warned_of(embed: Build, spec: str) -> None:
    model = embed("timm:levit_128s,size=32,dim=8")
    layered = nn.Sequential(model, nn.LayerNorm(8))
    layered.size = 32  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="one set of running statistics for all routes"):
        routed = norms.apply(spec, layered, ["a"])
    before = {k: v.clone() for k, v in routed.state_dict().items() if k.endswith("running_mean")}
    routed.train()(torch.rand(4, 3, 32, 32), route="a")
    assert any(not torch.equal(routed.state_dict()[key], value) for key, value in before.items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "only .* differ")
        still = norms.apply(f"{spec},frozen=true", routed.merge(), ["a"])
    before = {k: v.clone() for k, v in still.state_dict().items() if k.endswith("running_mean")}
    still.train()(torch.rand(4, 3, 32, 32), route="a")
    assert all(torch.equal(still.state_dict()[key], value) for key, value in before.items())


def test_applying_twice_is_refused(embed: Build) -> None:
    model = norms.apply("kway", embed("smallconv"), ["a"])
    for embedder in (model, nn.Sequential(model)):
        with pytest.raises(UserError, match="has routes already"):
            norms.apply("shared", embedder, ["b"])
    norms.apply("kway", model.merge(), ["b"])


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_malformed_route_name_is_refused(embed: Build, name: str) -> None:
    with pytest.raises(UserError, match="no name for a route"):
        norms.apply("kway", embed("smallconv"), [name])


def test_names_of_module_methods_are_good_route_names(embed: Build, pictures: Pictures) -> None:
    model = norms.apply("kway", embed("smallconv"), ["train", "half", "type"])
    for route in model.routes:
        model(pictures(0), route=route)
    model.load_state_dict(model.state_dict())


@pytest.mark.parametrize("spec", ["shared:frozen=true", "kway:frozen=true", "dual:frozen=true"])
def test_frozen_statistics_stay_in_every_set_and_the_affine_part_trains(
    embed: Build, pictures: Pictures, spec: str
) -> None:
    model = norms.apply(spec, embed("timm:resnet10t"), ["a", "b"]).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert model.training and model.embedder.backbone.layer1.training
    for route in model.routes:
        model(pictures(0), route=route).pow(3).sum().backward()
    after = model.state_dict(keep_vars=True)
    assert all(torch.equal(after[k], v) for k, v in before.items() if "running" in k)
    affine = [v for k, v in after.items() if k.endswith(("bn2.weight", "bn2.bias"))]
    assert len(affine) == 8 * (1 + len(model.sets))
    assert all(v.grad is not None and v.grad.any() for v in affine)
    model.at("a").train()
    assert not model.embedder.backbone.bn1.training
    assert model.eval().train().embedder.backbone.conv1.training


def test_timms_synchronized_norms_get_routes(embed: Build, pictures: Pictures) -> None:
    embedder = timm.layers.convert_sync_batchnorm(embed("timm:test_efficientnet"))
    assert any(isinstance(part, nn.SyncBatchNorm) for part in embedder.modules())
    model = norms.apply("kway", embedder, ["a"], noise=0.2).eval()
    plain = copy.deepcopy(embed("timm:test_efficientnet")).eval()
    plain.load_state_dict(model.merge("a").state_dict())
    assert torch.equal(plain(pictures(0)), model(pictures(0), route="a"))


def test_modes_and_flags_of_sub_modules_are_kept(embed: Build) -> None:
    embedder = embed("smallconv").train()
    embedder.backbone[1].eval()
    embedder.backbone[5].weight.requires_grad_(False)
    model = norms.apply("kway", embedder, ["a"])
    assert model.training and not embedder.backbone[1].training
    flags = {k: v.requires_grad for k, v in model.state_dict(keep_vars=True).items()}
    assert not flags["sets.a.5.weight"]
    assert flags["sets.a.5.bias"] and flags["sets.a.1.weight"]


class Tied(nn.Module):
    """A norm used twice, and two norms with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.first, self.second = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.again = self.first
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(self.conv(x))
        return self.second(self.again(self.conv(inner[:, :3])))


def test_a_tied_tensor_has_one_copy_per_set(pictures: Pictures) -> None:
    embedder = Embedder(Source(Tied()))
    model = norms.apply("kway", embedder, ["a", "b"], noise=0.3)
    assert len(model.slots) == 9
    inner = model.embedder.backbone
    seen = set()
    for route in model.routes:
        with model.route(route):
            assert inner.first is inner.again
            assert inner.first.weight is inner.second.weight
            assert inner.first.bias is not inner.second.bias
            seen.add(id(inner.first.weight))
    assert len(seen) == 3
    assert len(list(model.parameters())) == 2 + 3 * 3
    plain = model.eval().merge("a")
    assert plain.backbone.first.weight is plain.backbone.second.weight
    assert torch.equal(plain(pictures(0)), model(pictures(0), route="a"))
    second = norms.apply("kway", Embedder(Source(Tied())), ["a", "b"]).eval()
    second.load_state_dict(model.state_dict())
    assert torch.equal(second(pictures(0), route="b"), model(pictures(0), route="b"))


def test_a_tensor_replaced_after_the_conversion_is_the_one_that_is_used(
    embed: Build, pictures: Pictures
) -> None:
    model: RoutedEmbedder = norms.apply("kway", embed("smallconv"), ["a"]).eval()
    model.embedder.backbone[1].weight = nn.Parameter(torch.zeros(16))
    wanted = model(pictures(0))
    with model.route("a"):
        model.embedder.backbone[1].weight = nn.Parameter(torch.zeros(16))
    assert torch.equal(model(pictures(0), route="a"), wanted)
    assert not model.state_dict()["sets.a.1.weight"].any()
