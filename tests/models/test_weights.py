"""Weights: strict both ways, never code, whole files."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from dmltk import models
from dmltk.cache import cache_dir
from dmltk.errors import UserError
from dmltk.models import Embedder, Source, load, save
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


def equal(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DMLTK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_a_saved_embedder_loads_back(folder: Path) -> None:
    first = models.build("timm:test_efficientnet,dim=5")
    save(first, folder / "m.safetensors", {"dmltk": "0", "text": "ünï"})
    second = models.build("timm:test_efficientnet,dim=5", weights=str(folder / "m.safetensors"))
    assert equal(first, second)
    with safe_open(folder / "m.safetensors", "pt") as file:
        assert file.metadata() == {"dmltk": "0", "text": "ünï"}
    assert [path.name for path in folder.iterdir()] == ["m.safetensors"]


def test_a_failed_save_leaves_the_old_file(folder: Path) -> None:
    first = models.build("smallconv")
    save(first, folder / "m.safetensors")
    before = (folder / "m.safetensors").read_bytes()
    with pytest.raises(TypeError):
        save(first, folder / "m.safetensors", {"a": 3})  # type: ignore[dict-item]
    assert [path.name for path in folder.iterdir()] == ["m.safetensors"]
    assert (folder / "m.safetensors").read_bytes() == before


def test_channels_last_and_sliced_tensors_are_stored(folder: Path) -> None:
    first = models.build("smallconv").to(memory_format=torch.channels_last)
    first.backbone[1].weight.data = torch.arange(32.0)[16:]
    save(first, folder / "m.safetensors")
    second = models.build("smallconv", weights=str(folder / "m.safetensors"))
    assert equal(first, second)


class Tied(nn.Module):
    """Two convolutions with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 3, 3, bias=False)
        self.b = nn.Conv2d(3, 3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def test_tied_tensors_are_stored_once(folder: Path) -> None:
    first, second = Embedder(Source(Tied())), Embedder(Source(Tied()))
    save(first, folder / "m.safetensors")
    assert list(load_file(folder / "m.safetensors")) == ["a.weight"]
    load(second, str(folder / "m.safetensors"))
    assert equal(first, second)
    assert second.backbone.a.weight is second.backbone.b.weight


@pytest.mark.parametrize("wrapping", ["", "state_dict", "model"])
@pytest.mark.parametrize("suffix", ["pt", "pth", "bin"])
def test_stock_files_load_and_only_the_classifier_may_be_left(
    folder: Path, wrapping: str, suffix: str
) -> None:
    stock = timm.create_model("test_efficientnet", num_classes=7)
    state = stock.state_dict()
    path = folder / f"stock.{suffix}"
    torch.save({wrapping: state, "epoch": 3} if wrapping else state, path)
    embedder = models.build("timm:test_efficientnet,dim=5", weights=str(path))
    found = embedder.state_dict()
    assert all(torch.equal(found[k], v) for k, v in state.items() if "classifier" not in k)
    assert embedder.embedding_size == 5


def test_a_distilled_models_two_classifiers_may_be_left(folder: Path) -> None:
    state = timm.create_model("levit_128s", img_size=32).state_dict()
    save_file(state, folder / "levit.safetensors")
    models.build("timm:levit_128s,size=32", weights=str(folder / "levit.safetensors"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {f"module.{k}": v for k, v in s.items()}, "strip the prefix 'module.'"),
        (lambda s: {f"a.b.{k}": v for k, v in s.items()}, "strip the prefix 'a.b.'"),
        (lambda s: {k: v for k, v in s.items() if k != "1.bias"}, "the file lacks 1.bias$"),
        (lambda s: s | {"x.weight": torch.ones(1)}, "the model has no x.weight$"),
        (lambda s: s | {"1.bias": torch.ones(3)}, r"1.bias \(\(3,\) in the file, \(16,\)"),
        (lambda s: s | {"embed.0.weight": torch.ones(3, 64)}, "dim="),
        (lambda s: {}, "the file lacks 0.weight, 1.weight, 1.bias and 15 more"),
    ],
)
def test_what_does_not_match_is_named(folder: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    embedder = models.build("smallconv")
    before = {k: v.clone() for k, v in embedder.state_dict().items()}
    save_file(change(embedder.state_dict()), folder / "m.safetensors")
    with pytest.raises(UserError, match=message):
        load(embedder, str(folder / "m.safetensors"))
    assert all(torch.equal(v, before[k]) for k, v in embedder.state_dict().items())


def test_a_missing_prefix_is_named(folder: Path) -> None:
    inner = nn.Sequential()
    inner.add_module("net", models.build("smallconv").backbone)
    embedder = Embedder(Source(inner))
    save_file(models.build("smallconv").state_dict(), folder / "m.safetensors")
    with pytest.raises(UserError, match=r"put the prefix 'net\.' before"):
        load(embedder, str(folder / "m.safetensors"))


def test_a_file_with_a_head_must_match_it(folder: Path) -> None:
    save(models.build("smallconv:dim=5"), folder / "m.safetensors")
    with pytest.raises(UserError, match=r"embed\.0\.weight \(\(5, 64\) in the file, \(6, 64\)"):
        models.build("smallconv:dim=6", weights=str(folder / "m.safetensors"))


class Code:
    """Something a pickle would have to run."""


def test_a_pickle_with_code_is_refused(folder: Path) -> None:
    torch.save({"state_dict": models.build("smallconv")}, folder / "m.pt")
    with pytest.raises(UserError, match="would run code"):
        models.build("smallconv", weights=str(folder / "m.pt"))
    torch.save([Code()], folder / "n.pt")
    with pytest.raises(UserError, match="would run code"):
        models.build("smallconv", weights=str(folder / "n.pt"))


def test_damaged_and_foreign_files_are_refused(folder: Path) -> None:
    for name in ("a.safetensors", "a.pt"):
        (folder / name).write_bytes(b"nothing of the kind")
        with pytest.raises(UserError, match=name):
            models.build("smallconv", weights=str(folder / name))
    torch.save({"epoch": 3}, folder / "b.pt")
    with pytest.raises(UserError, match="no state dict"):
        models.build("smallconv", weights=str(folder / "b.pt"))
    (folder / "c.onnx").write_bytes(b"")
    with pytest.raises(UserError, match=r"end in \.safetensors"):
        models.build("smallconv", weights=str(folder / "c.onnx"))


def test_a_name_is_looked_up_in_the_cache(folder: Path) -> None:
    with pytest.raises(UserError, match="weights 'lite0' are not here; run: dmltk data get lite0"):
        models.build("smallconv:weights=lite0")
    with pytest.raises(UserError, match="no such file"):
        models.build("smallconv", weights=str(folder / "lite0"))
    kept = models.build("smallconv")
    (cache_dir() / "weights").mkdir(parents=True)
    save(kept, cache_dir() / "weights" / "lite0.safetensors")
    assert equal(models.build("smallconv:weights=lite0"), kept)
