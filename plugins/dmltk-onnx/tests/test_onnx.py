"""ONNX files as models: what they give, what is asked of them, what is refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from dmltk import Batch, Reference, attacks, models, norms
from dmltk.bench.assemble import assemble
from dmltk.bench.run import run
from dmltk.errors import DmltkError, UserError
from dmltk.folder import RunFolder
from dmltk.models import Source
from dmltk_onnx import export
from onnx import TensorProto, helper

PICTURES = ["n", 3, "h", "w"]


def graph(
    file: Path, shape: list[Any] = PICTURES, dtype: int = TensorProto.FLOAT, *, outputs: int = 1
) -> str:
    """A file that averages each channel; of (H, W, C) pictures where the last side is 3."""
    last = shape[-1] == 3
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if last else []
    nodes += [
        helper.make_node("ReduceMean", ["t" if last else "x"], ["z"], axes=[2, 3], keepdims=0),
        helper.make_node("Neg", ["z"], ["minus"]),
    ]
    results = [helper.make_tensor_value_info(n, dtype, [shape[0], 3]) for n in ("z", "minus")]
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", dtype, shape)], results[:outputs]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=8), file)
    return str(file)


def unit(z: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(z, dim=1)


@pytest.mark.parametrize(
    ("spec", "strategy", "route"),
    [
        ("smallconv:dim=8", "kway", "a"),
        ("timm:resnet10t,size=32,dim=8", "dual", "main"),
        ("timm:test_vit,size=32", "kway:layers=ln", "a"),
    ],
)
def test_an_exported_route_embeds_as_it_did(
    tmp_path: Path, spec: str, strategy: str, route: str
) -> None:
    model = norms.apply(strategy, models.build(spec, seed=0), ["a"], noise=0.3).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    export(model, tmp_path / "m.onnx", route=route, size=32)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    read = models.build(f"onnx:{tmp_path / 'm.onnx'}")
    assert (read.size, read.embedding_size) == (32, model.embedder.embedding_size)
    for count in (1, 2, 5):
        x = torch.rand(count, 3, 32, 32)
        wanted = model.eval()(x, route=route)
        assert torch.allclose(read(x), wanted, atol=1e-4)
    other = "main" if route == "a" else "a"
    assert not torch.allclose(read(x), model(x, route=other), atol=1e-2)


def test_a_file_that_embeds_otherwise_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmltk_onnx.write.TOLERANCE", -1.0)
    with pytest.raises(DmltkError, match="differ from the model's by"):
        export(models.build("smallconv"), tmp_path / "m.onnx", size=16)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_traced_is_a_sentence(tmp_path: Path) -> None:
    class Asking(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((2, 3)) * float(np.asarray(images.sum().item() > 0))

    with pytest.raises(DmltkError, match="cannot be written as ONNX"):
        export(models.Embedder(Source(Asking())), tmp_path / "m.onnx", size=16)
    with pytest.raises(UserError, match=r"say of which, with size="):
        export(models.Embedder(Source(Asking())), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["onnx", "onnxscript"])
def test_export_names_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda asked: None if asked == name else 1)
    with pytest.raises(UserError, match=rf"needs {name}: run pip install 'dmltk-onnx\[export\]'"):
        export(models.build("smallconv"), tmp_path / "m.onnx", size=16)


@pytest.mark.parametrize(
    "shape", [PICTURES, [4, 3, 16, 16], ["n", 16, 16, 3], [1, "h", "w", 3], ["n", None, 16, 16]]
)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_every_shape_of_pictures_gives_the_means(
    tmp_path: Path, shape: list[Any], dtype: int
) -> None:
    model = models.build(f"onnx:{graph(tmp_path / 'g.onnx', shape, dtype)}")
    for count in (1, 3, 4, 9):
        x = torch.rand(count, 3, 16, 16)
        assert torch.allclose(model(x), unit(x.mean((2, 3))), atol=1e-5)
    assert model.size == (16 if 16 in shape else None)


def test_an_output_is_picked_and_pictures_are_normalised(tmp_path: Path) -> None:
    file = graph(tmp_path / "g.onnx", outputs=2)
    x = torch.rand(3, 3, 8, 8)
    with pytest.raises(UserError, match="a dict of z, minus, not a tensor: pick with output="):
        models.build(f"onnx:{file}")
    model = models.build(f"onnx:{file},output=minus,unit=false,mean=[.1,.2,.3],std=[2,2,4]")
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([2.0, 2.0, 4.0])
    assert torch.allclose(model(x), -(x.mean((2, 3)) - mean) / std, atol=1e-6)


def test_copies_and_pickles_open_the_file_again(tmp_path: Path) -> None:
    model = models.build(f"onnx:{graph(tmp_path / 'g.onnx')}")
    x = torch.rand(3, 3, 8, 8)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))


@pytest.mark.parametrize(
    ("shape", "dtype", "rest", "message"),
    [
        (["n", 3, 8, 9], TensorProto.FLOAT, "", "8 x 9: they must be square"),
        (["n", 3], TensorProto.FLOAT, "", r"must take pictures \(N,C,H,W\)"),
        (PICTURES, TensorProto.INT64, "", "of floating-point numbers"),
        (PICTURES, TensorProto.FLOAT, ",provider=Xpu", "unknown provider 'Xpu'"),
        (PICTURES, TensorProto.FLOAT, ",mean=[.5]", "mean has 1 numbers and .* takes 3"),
        (PICTURES, TensorProto.FLOAT, ",std=[1,0,1]", "each must be positive"),
        (["n", 3, 8, 8], TensorProto.FLOAT, ",size=16", "of side 8 alone: leave size=16 out"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, shape: list[Any], dtype: int, rest: str, message: str
) -> None:
    file = tmp_path / "g.onnx"
    one = helper.make_tensor_value_info("x", dtype, shape)
    made = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "g", [one], [])
    made.output.append(helper.make_tensor_value_info("z", dtype, shape))
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=8), file)
    with pytest.raises(UserError, match=message):
        models.build(f"onnx:{file}{rest}")


def test_broken_and_missing_files_and_two_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no ONNX file"):
        models.build(f"onnx:{tmp_path / 'none.onnx'}")
    (tmp_path / "torn.onnx").write_bytes(Path(graph(tmp_path / "g.onnx")).read_bytes()[:50])
    with pytest.raises(UserError, match=r"torn\.onnx cannot be read as ONNX"):
        models.build(f"onnx:{tmp_path / 'torn.onnx'}")
    both = [helper.make_tensor_value_info(n, TensorProto.FLOAT, PICTURES) for n in "xy"]
    out = [helper.make_tensor_value_info("z", TensorProto.FLOAT, PICTURES)]
    made = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", both, out)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=8), tmp_path / "two.onnx")
    with pytest.raises(UserError, match=r"has 2 inputs \(x, y\)"):
        models.build(f"onnx:{tmp_path / 'two.onnx'}")


def test_a_black_box_attack_finds_what_it_finds_on_the_module(tmp_path: Path) -> None:
    plain = models.build("smallconv:dim=8", seed=0).eval()
    export(plain, tmp_path / "m.onnx", size=16)
    read = models.build(f"onnx:{tmp_path / 'm.onnx'}")
    x, labels = torch.rand(6, 3, 16, 16), torch.arange(6) % 3
    batch = Batch(x, labels, torch.arange(6), Reference(plain(x).detach(), labels))
    square = attacks.build("misrank:solver=square(queries=60),eps=.1")
    own, black = (
        square(model, batch, generator=torch.Generator().manual_seed(1)) for model in (plain, read)
    )
    assert torch.allclose(own.loss, black.loss, atol=1e-3)
    assert (black.loss < black.start_loss).any() and black.backwards == 0
    with pytest.raises(UserError, match="gradient"):
        attacks.build("misrank")(read, batch, generator=torch.Generator())


def flags(**given: Any) -> dict[str, Any]:
    lists = dict.fromkeys(("suite", "attack", "protocol", "metric"), ())
    none = dict.fromkeys(("out", "eps", "limit", "batch", "seed", "surrogate", "save_adversarial"))
    return {"resume": False, "overwrite": False, **lists, **none, **given}


def test_a_bench_runs_black_box_attacks_and_says_why_others_are_left_out(tmp_path: Path) -> None:
    export(models.build("smallconv:dim=8", seed=0), tmp_path / "m.onnx", size=16)
    config, out = assemble(
        flags(
            model=f"onnx:{tmp_path / 'm.onnx'}",
            dataset="glyphs:classes=8,per_class=6,size=16",
            attack=("misrank:solver=nes(queries=60)", "noise", "stax"),
            surrogate="smallconv:dim=8",
            eps=".05",
            limit="10",
            out=str(tmp_path / "b"),
        )
    )
    found = run(config, RunFolder(out), lambda *_: None, lambda _: None)
    names = {entry["name"] for entry in found["evaluations"]}
    assert {"clean", "misrank", "noise"} <= names and "stax" not in names
    assert any("stax needs gradients" in warning for warning in found["warnings"])
