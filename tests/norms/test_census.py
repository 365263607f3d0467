"""Every family of timm that has normalisers, by a small model with each kind of them.

The table is that of timm 1.0.31, found from all of its 1,371 models: 59 families have batch norms,
53 layer norms, 10 group norms.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import timm
import torch
from dmltk import models, norms
from dmltk.errors import UserError
from dmltk.models import Embedder
from dmltk.norms import RoutedEmbedder
from timm.models import get_pretrained_cfg
from torch import Tensor

FAMILIES: dict[str, dict[str, str]] = {
    "beit": {"beit_base_patch16_224": "ln"},
    "byoanet": {"lambda_resnet26t": "bn"},
    "byobnet": {"test_byobnet": "bn", "gcresnext26ts": "ln"},
    "cait": {"cait_xxs24_224": "ln"},
    "coat": {"coat_tiny": "ln"},
    "convit": {"convit_tiny": "ln"},
    "convmixer": {"convmixer_768_32": "bn"},
    "convnext": {"test_convnext": "ln"},
    "cpubone": {"cpubone_nano": "bn ln gn"},
    "crossvit": {"crossvit_tiny_240": "ln"},
    "csatv2": {"csatv2": "ln"},
    "cspnet": {"cs3darknet_focus_s": "bn"},
    "cspnext": {"cspnext_tiny": "bn"},
    "davit": {"davit_tiny": "ln"},
    "deepseek_vit": {"deepseek_vit_412m": "ln"},
    "deit": {"deit_tiny_patch16_224": "ln"},
    "densenet": {"densenet121": "bn"},
    "dla": {"dla46x_c": "bn"},
    "dpn": {"dpn48b": "bn"},
    "edgenext": {"edgenext_xx_small": "ln"},
    "efficientformer": {"efficientformer_l1": "bn ln"},
    "efficientformer_v2": {"efficientformerv2_s0": "bn"},
    "efficientnet": {
        "test_efficientnet": "bn",
        "test_efficientnet_ln": "ln",
        "test_efficientnet_gn": "gn",
    },
    "efficientvim": {"efficientvim_m1": "bn ln"},
    "efficientvit_mit": {"efficientvit_b0": "bn ln"},
    "efficientvit_msra": {"efficientvit_m0": "bn"},
    "eva": {"vit_tiny_patch16_dinov3_qkvb": "ln"},
    "fasternet": {"fasternet_t0": "bn"},
    "fastvit": {"fastvit_t8": "bn", "fastvit_mci3": "ln"},
    "focalnet": {"focalnet_tiny_srf": "ln"},
    "gcvit": {"gcvit_xxtiny": "ln"},
    "gemma4_vit": {"gemma4_vit_167m": "ln"},
    "ghostnet": {"ghostnet_050": "bn"},
    "hardcorenas": {"hardcorenas_b": "bn"},
    "hgnet": {"hgnetv2_b0": "bn"},
    "hiera": {"hiera_tiny_224": "ln"},
    "hieradet_sam2": {"sam2_hiera_tiny": "ln"},
    "hrnet": {"hrnet_w18_small": "bn"},
    "iformer": {"iformer_t": "bn"},
    "inception_next": {"inception_next_atto": "bn ln"},
    "inception_resnet_v2": {"inception_resnet_v2": "bn"},
    "inception_v3": {"inception_v3": "bn"},
    "inception_v4": {"inception_v4": "bn"},
    "lcnetv2": {"lcnetv2_small": "bn"},
    "levit": {"levit_128s": "bn"},
    "lowformer": {"lowformer_b0": "bn ln gn"},
    "mambaout": {"test_mambaout": "ln"},
    "maxxvit": {"test_coatnet": "bn ln"},
    "metaformer": {"poolformerv2_s12": "ln gn"},
    "mlp_mixer": {"gmlp_ti16_224": "ln"},
    "mobilenetv3": {"mobilenetv3_small_050": "bn"},
    "mobilenetv5": {"mobilenetv5_base": "ln"},
    "mobilevit": {"mobilevit_xxs": "bn ln", "mobilevitv2_050": "gn"},
    "mvitv2": {"mvitv2_tiny": "ln"},
    "naflexvit": {"naflexvit_base_patch16_parfac_gap": "ln"},
    "nasnet": {"nasnetalarge": "bn"},
    "nest": {"nest_tiny": "ln"},
    "nextvit": {"nextvit_small": "bn"},
    "pit": {"pit_ti_224": "ln"},
    "pnasnet": {"pnasnet5large": "bn"},
    "pvt_v2": {"pvt_v2_b0": "ln"},
    "qwen3_vit": {"qwen3_vit_88m": "ln"},
    "rdnet": {"rdnet_tiny": "ln"},
    "regnet": {"regnetx_002": "bn", "regnety_040_sgn": "gn"},
    "repghost": {"repghostnet_050": "bn"},
    "repvit": {"repvit_m1": "bn"},
    "res2net": {"res2next50": "bn"},
    "resnest": {"resnest14d": "bn"},
    "resnet": {"test_resnet": "bn", "resnet50_gn": "gn"},
    "resnetv2": {"resnetv2_18": "bn", "resnetv2_50x1_bit": "gn"},
    "rexnet": {"rexnet_100": "bn"},
    "selecsls": {"selecsls42": "bn"},
    "senet": {"legacy_seresnet18": "bn"},
    "sequencer": {"sequencer2d_s": "ln"},
    "shvit": {"shvit_s1": "bn gn"},
    "sknet": {"skresnet18": "bn"},
    "starnet": {"starnet_s050": "bn"},
    "swiftformer": {"swiftformer_xs": "bn"},
    "swin_transformer": {"swin_tiny_patch4_window7_224": "ln"},
    "swin_transformer_v2": {"swinv2_tiny_window16_256": "ln"},
    "swin_transformer_v2_cr": {"swinv2_cr_tiny_224": "ln"},
    "tiny_vit": {"tiny_vit_5m_224": "bn ln"},
    "tnt": {"tnt_s_legacy_patch16_224": "ln"},
    "tresnet": {"tresnet_m": "bn"},
    "twins": {"twins_svt_small": "ln"},
    "vgg": {"vgg11_bn": "bn"},
    "visformer": {"visformer_tiny": "bn"},
    "vision_transformer": {"test_vit": "ln"},
    "vision_transformer_hybrid": {
        "vit_small_resnet50d_s16_224": "bn",
        "vit_tiny_r_s16_p8_224": "ln gn",
    },
    "vision_transformer_relpos": {"test_vit_relpos": "ln"},
    "vision_transformer_sam": {"samvit_base_patch16_224": "ln"},
    "vitamin": {"vitamin_small_224": "ln"},
    "volo": {"volo_d1_224": "bn ln"},
    "vovnet": {"ese_vovnet19b_slim_dw": "bn"},
    "xception": {"legacy_xception": "bn"},
    "xception_aligned": {"xception41p": "bn"},
    "xcit": {"xcit_nano_12_p8_224": "bn ln"},
}
WITHOUT = {
    "nfnet": ("test_nfnet", "its convolutions normalise their weights; it has no normaliser layer"),
}
SIDE = 32
SIDES = {
    "crossvit_tiny_240": 240,
    "csatv2": 64,
    "deepseek_vit_412m": 126,
    "efficientformer_l1": 224,
    "gemma4_vit_167m": 96,
    "inception_resnet_v2": 96,
    "inception_v3": 96,
    "inception_v4": 96,
    "sam2_hiera_tiny": 224,
}
SMALLER = {"deepseek_vit_412m": {"depth": 2}}

CASES = [
    pytest.param(name, kind, id=f"{family}-{kind}")
    for family, names in FAMILIES.items()
    for name, kinds in names.items()
    for kind in kinds.split()
]


def test_no_family_of_timm_is_new_or_gone() -> None:
    listed = FAMILIES.keys() | WITHOUT.keys()
    installed = set(timm.list_modules())
    assert not installed - listed, "new in timm: give each a model in FAMILIES, or a reason"
    assert not listed - installed, "no longer in timm"


def test_each_family_is_represented_by_models_of_its_own() -> None:
    named = {family: set(names) for family, names in FAMILIES.items()}
    named |= {family: {name} for family, (name, _) in WITHOUT.items()}
    for family, names in named.items():
        assert names and names <= set(timm.list_models(module=family)), family
    every = set().union(*named.values())
    assert SIDES.keys() <= every and SMALLER.keys() <= every


@pytest.mark.parametrize("family", WITHOUT)
def test_a_family_without_normalizers_is_refused(family: str) -> None:
    name, reason = WITHOUT[family]
    with pytest.raises(UserError, match="no normaliser with tensors of its own; use --bn shared"):
        norms.apply("kway:layers=all", models.build(f"timm:{name},size={SIDE}"), ["adv"])
    assert reason


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Models without small siblings are made with fewer blocks."""

    def create(name: str, **args: object) -> torch.nn.Module:
        return timm.create_model(name, **args, **SMALLER.get(name, {}))

    monkeypatch.setattr("dmltk.models.timm.create_model", create)
    yield


def stirred(embedder: Embedder) -> Embedder:
    """Parameters that begin at zero get some other number: they keep gradients from the norms."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in embedder.parameters():
            if not parameter.any():
                parameter += 0.01 * torch.randn(parameter.shape, generator=generator)
    return embedder


def stepped(model: RoutedEmbedder, x: Tensor) -> None:
    """One training step of the route's own tensors, each against its gradient's sign."""
    model.train()(x, route="adv").pow(3).sum().backward()
    with torch.no_grad():
        for parameter in model.sets.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad.sign()
    model.zero_grad()
    model.eval()


def moved(model: RoutedEmbedder) -> float:
    """Share of the private tensors in which the routes differ."""
    found = model.state_dict()
    differ = [not torch.equal(found[s.key], found[f"sets.adv.{s.key}"]) for s in model.slots]
    return sum(differ) / len(differ)


def stock(name: str, side: int) -> torch.nn.Module:
    """The same model by timm alone, without memory for its tensors."""
    args = dict(SMALLER.get(name, {}))
    if get_pretrained_cfg(name).fixed_input_size:
        args["img_size"] = side
    with torch.device("meta"):
        return timm.create_model(name, num_classes=0, **args)


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
@pytest.mark.filterwarnings("ignore:only .* normaliser layers differ")
@pytest.mark.parametrize(("name", "layers"), CASES)
def test_a_family_gets_routes(name: str, layers: str) -> None:
    """Batch norms that are shared stay frozen: their statistics would follow the other route."""
    side = SIDES.get(name, SIDE)
    embedder = stirred(models.build(f"timm:{name},size={side}", seed=0)).eval()
    x = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = embedder(x)
    model = norms.apply("kway", embedder, ["adv"], layers=layers, frozen=layers != "bn")
    with torch.no_grad():
        assert torch.equal(model(x, route="main"), wanted)
        assert torch.equal(model(x, route="adv"), wanted)
    assert moved(model) == 0
    stepped(model, x)
    assert moved(model) > 0.9
    with torch.no_grad():
        assert torch.equal(model(x, route="main"), wanted)
        found = model(x, route="adv")
        assert found.isfinite().all() and not torch.equal(found, wanted)
        plain = model.merge("adv")
        assert torch.equal(plain(x), found)
    stock(name, side).load_state_dict(plain.state_dict(), strict=True, assign=True)
