"""Tiny random encoders of four families: they conform, and see what their processors give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from dmltk import models, norms
from dmltk.errors import UserError
from dmltk.testing import check
from PIL import Image
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    Dinov2Config,
    Dinov2Model,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

SIZE = 16
SMALL = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 8,
}
TEXT = {k: v for k, v in SMALL.items() if k not in ("image_size", "patch_size")} | {
    "vocab_size": 20
}
PIXELS = {"height": SIZE, "width": SIZE}


def saved(folder: Path, kind: str) -> str:
    """A tiny random model of a family, saved as its library does, with its processor."""
    torch.manual_seed(0)
    space = {"projection_dim": 6} if kind == "clip" else {}
    both = {"vision_config": SMALL | space, "text_config": TEXT | space}
    model: Any = {
        "clip": lambda: CLIPModel(CLIPConfig(**both, **space)),
        "siglip": lambda: SiglipModel(SiglipConfig(**both)),
        "dinov2": lambda: Dinov2Model(Dinov2Config(**SMALL)),
        "vit": lambda: ViTForImageClassification(ViTConfig(**SMALL, num_labels=3)),
    }[kind]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    processor: Any = {
        "clip": CLIPImageProcessor(size=PIXELS, crop_size=PIXELS),
        "siglip": SiglipImageProcessor(size=PIXELS),
        "dinov2": ViTImageProcessor(
            size=PIXELS, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]
        ),
        "vit": ViTImageProcessor(size=PIXELS, rescale_factor=1 / 127.5, do_normalize=False),
    }[kind]
    processor.save_pretrained(folder)
    return str(folder)


FAMILIES = ("clip", "siglip", "dinov2", "vit")


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_conforms(tmp_path: Path, kind: str) -> None:
    results = check("model", f"transformers:{saved(tmp_path, kind)}")
    failed = [one for one in results if one.status == "failed"]
    assert not failed, "\n".join(f"{one.check}: {one.message}" for one in failed)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_picture_is_seen_as_through_the_processor(tmp_path: Path, kind: str) -> None:
    folder = saved(tmp_path, kind)
    pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    given = transformers.AutoImageProcessor.from_pretrained(folder)(
        images=Image.fromarray(pixels), do_resize=False, return_tensors="pt"
    )["pixel_values"]
    whole = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if kind in ("clip", "siglip"):
            found = whole.get_image_features(pixel_values=given)
            wanted = found if isinstance(found, torch.Tensor) else found.pooler_output
        elif kind == "dinov2":
            wanted = whole(pixel_values=given).pooler_output
        else:
            wanted = whole(pixel_values=given).last_hidden_state[:, 0]
        model = models.build(f"transformers:{folder}").eval()
        picture = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
        z = model(picture)
    assert torch.allclose(z, nn.functional.normalize(wanted, dim=1), atol=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_routes_have_layer_norms_of_their_own(tmp_path: Path, kind: str) -> None:
    model = models.build(f"transformers:{saved(tmp_path, kind)},dim=4,checkpointing=true")
    layers = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    routed = norms.apply("kway:layers=ln", model, ["stax"]).train()
    assert len({slot.holder for slot in routed.slots}) == len(layers) >= 5
    x = torch.rand(4, 3, SIZE, SIZE)
    before = routed.eval()(x).detach()
    optimizer = torch.optim.SGD([p for n, p in routed.named_parameters() if "sets." in n], lr=1.0)
    routed.train()(x, route="stax")[:, 0].sum().backward()
    optimizer.step()
    assert torch.equal(routed.eval()(x), before)
    assert not torch.allclose(routed(x, route="stax"), before, atol=1e-3)


@pytest.mark.parametrize("feature", ["cls", "mean", "pooled"])
def test_other_features_and_other_sizes(tmp_path: Path, feature: str) -> None:
    folder = saved(tmp_path, "dinov2")
    model = models.build(f"transformers:{folder},feature={feature},size=24").eval()
    assert model.size == 24 and model(torch.rand(2, 3, 24, 24)).shape == (2, 8)
    stretched = models.build(f"transformers:{saved(tmp_path / 'v', 'vit')},size=24").eval()
    assert stretched(torch.rand(2, 3, 24, 24)).shape == (2, 8)


def test_a_pooler_without_weights_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"lack pooler\..*: take feature=cls"):
        models.build(f"transformers:{saved(tmp_path, 'vit')},feature=pooled")


def test_a_feature_that_a_model_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no feature=projected: take cls or mean"):
        models.build(f"transformers:{saved(tmp_path, 'dinov2')},feature=projected")


def test_what_sees_no_pictures_is_refused(tmp_path: Path) -> None:
    BertModel(BertConfig(**TEXT)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="is a bert, which sees no pictures"):
        models.build(f"transformers:{tmp_path}")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = Path(saved(tmp_path, "vit"))
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot load"):
        models.build(f"transformers:{folder}")


def test_code_of_a_repository_is_not_run(tmp_path: Path) -> None:
    folder = Path(saved(tmp_path, "vit"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "code.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(UserError, match="cannot load"):
        models.build(f"transformers:{folder}")


def test_a_missing_processor_asks_for_the_numbers(tmp_path: Path) -> None:
    folder = Path(saved(tmp_path, "vit"))
    for file in folder.glob("*processor*"):
        file.unlink()
    with pytest.raises(UserError, match="give mean="):
        models.build(f"transformers:{folder}")
    model = models.build(f"transformers:{folder},mean=[.5,.5,.5],std=[.5,.5,.5]")
    assert model.size == SIZE


def test_the_hub_is_asked_only_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def asked(name: str, **given: Any) -> Any:
        seen.append(given["local_files_only"])
        raise OSError("not reached in a test")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", asked)
    for spec in ("transformers:someone/something", "transformers:someone/something,hub=true"):
        with pytest.raises(UserError, match="hub=true"):
            models.build(spec)
    assert seen == [True, False]
