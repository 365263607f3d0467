"""The model of a finished run: its file alone builds it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from dmltk import models, registry
from dmltk.errors import UserError
from dmltk.models import Embedder, card, save

CONTEXT = {"dim": 12, "size": 48}


def left_behind(folder: Path, spec: str, embedder: Embedder) -> str:
    folder.mkdir()
    about = {"dmltk": "1", "route": "main"}
    save(embedder, folder / "model.safetensors", {**card(embedder, spec, CONTEXT), **about})
    return f"run:'{folder}'"


@pytest.mark.parametrize(
    "spec",
    [
        "smallconv:width=4",
        "smallconv:width=4,dim=7,hidden=5,pool=avgmax,unit=false",
        "timm:test_efficientnet,drop_path=.1,seed=3",
        "timm:test_vit,channels=1,size=32",
        "torchvision:mobilenet_v3_small",
    ],
)
def test_the_file_alone_builds_the_same_embedder(tmp_path: Path, spec: str) -> None:
    first = models.build(spec, context=CONTEXT).eval()
    first.add_head("proj", dim=3, hidden=6, bn=True, pool="avg")
    second = models.build(left_behind(tmp_path / "a run", spec, first.eval())).eval()
    assert (second.size, second.embedding_size) == (first.size, first.embedding_size)
    assert list(second.state_dict()) == list(first.state_dict())
    x = torch.rand(2, first.mean.shape[1], second.size or 0, second.size or 0)
    found, wanted = (e(x, heads=("embed", "proj")) for e in (second, first))
    assert all(torch.equal(found[name], wanted[name]) for name in ("embed", "proj"))


def test_a_head_that_a_method_put_in_is_the_one_that_is_built(tmp_path: Path) -> None:
    first = models.build("smallconv", context=CONTEXT)
    first.set_head("embed", dim=9, hidden=4, bn=True)
    second = models.build(left_behind(tmp_path / "r", "smallconv", first))
    assert second.head("embed").args == first.head("embed").args
    assert second.embedding_size == 9


def test_first_weights_are_not_needed_again(tmp_path: Path) -> None:
    save(models.build("smallconv"), tmp_path / "first.safetensors")
    spec = f"smallconv:weights='{tmp_path}/first.safetensors'"
    first = models.build(spec, context=CONTEXT)
    named = left_behind(tmp_path / "r", spec, first)
    (tmp_path / "first.safetensors").unlink()
    assert models.build(named).embedding_size == 12
    assert card(first, "timm:resnet50,pretrained=true,dim=3")["model"] == "timm:resnet50,dim=3"


def test_a_run_that_went_on_from_a_run_stands_alone(tmp_path: Path) -> None:
    named = left_behind(tmp_path / "a", "smallconv:width=4", models.build("smallconv:width=4"))
    second = models.build(named, context={"dim": registry.factory("models", "run").train_dim})
    again = left_behind(tmp_path / "b", named, second)
    for file in (tmp_path / "a").iterdir():
        file.unlink()
    assert torch.equal(models.build(again).backbone[0].weight, second.backbone[0].weight)


def test_a_trained_head_is_kept_unless_another_is_asked_for(tmp_path: Path) -> None:
    first = models.build("smallconv:dim=5")
    named = left_behind(tmp_path / "r", "smallconv:dim=5", first)
    context = {"dim": registry.factory("models", "run").train_dim}
    kept = models.build(named, context=context)
    assert torch.equal(kept.head("embed")[0].weight, first.head("embed")[0].weight)
    assert models.build(f"{named},dim=8").embedding_size == 8


def test_no_code_is_run_because_a_file_names_it(tmp_path: Path) -> None:
    first = models.build("smallconv")
    (tmp_path / "r").mkdir()
    about = {"model": "os.path:join,dim=4", "heads": "{}"}
    save(first, tmp_path / "r" / "model.safetensors", about)
    with pytest.raises(UserError, match=r"would import 'os.path:join'.*dim=4,weights="):
        models.build(f"run:'{tmp_path}/r'")


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no model\.safetensors in .*finished run"):
        models.build(f"run:'{tmp_path}'")
    save(models.build("smallconv"), tmp_path / "model.safetensors", {"model": "smallconv"})
    with pytest.raises(UserError, match="lacks 'heads'"):
        models.build(f"run:'{tmp_path}'")
    (tmp_path / "model.safetensors").write_bytes(b"no such thing")
    with pytest.raises(UserError, match="cannot be read"):
        models.build(f"run:'{tmp_path}'")


def test_weights_that_do_not_fit_their_own_card_are_refused(tmp_path: Path) -> None:
    first = models.build("smallconv:dim=5")
    heads = card(first, "smallconv")["heads"]
    assert json.loads(heads)["embed"]["dim"] == 5
    about = {"model": "smallconv:width=4", "heads": heads}
    save(first, tmp_path / "model.safetensors", about)
    with pytest.raises(UserError, match="does not fit the model"):
        models.build(f"run:'{tmp_path}'")
