"""Models by import path, `package.module:function`, and pictures of other than three channels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dmltk import models, registry
from dmltk.errors import PluginError, UserError
from torch import nn

NETS = '''
"""Nets of a user's own."""

from torch import nn


class Mapped(nn.Module):
    """A convolution whose map comes in a container."""

    def __init__(self, give, channels=3):
        super().__init__()
        self.conv = nn.Conv2d(channels, 5, 3)
        self.give = give

    def forward(self, x):
        found = self.conv(x)
        return {"dict": {"map": found, "n": 1}, "tuple": (1, found), "text": "x"}.get(
            self.give, found
        )


def plain(width: int = 4):
    """One convolution."""
    return nn.Conv2d(3, width, 3)


def wide(channels: int = 6):
    """One convolution over many channels."""
    return nn.Conv2d(channels, 4, 3)


def loose(**given):
    """Takes anything."""
    return nn.Conv2d(3, 4, 3)


def number():
    """No model at all."""
    return 3
'''


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The import path of a package of nets, a new one each time."""
    package = f"nets_{tmp_path.name}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "own.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{package}.own"


def pictures(channels: int = 3) -> torch.Tensor:
    return torch.rand(2, channels, 16, 16, generator=torch.Generator().manual_seed(0))


def test_a_function_that_gives_a_bare_module_is_a_source(nets: str) -> None:
    embedder = models.build(f"{nets}:plain,width=6,dim=64,seed=1", context={"size": 16})
    assert (embedder.num_features, embedder.embedding_size, embedder.size) == (6, 64, 16)
    assert list(embedder.state_dict()) == ["weight", "bias", "embed.0.weight", "embed.0.bias"]
    feature = embedder.backbone(pictures()).mean((2, 3))
    expected = nn.functional.normalize(embedder.heads["embed"][0](feature))
    assert torch.allclose(embedder(pictures()), expected, atol=1e-6)
    assert models.build(f"{nets}:plain,5").num_features == 5


def test_arguments_of_the_function_are_checked_like_any_other(nets: str) -> None:
    with pytest.raises(UserError, match="unknown argument 'widht'.*did you mean 'width'"):
        models.build(f"{nets}:plain,widht=6")
    with pytest.raises(UserError, match="expected a number"):
        models.build(f"{nets}:plain,width=broad")
    with pytest.raises(PluginError, match="name its parameters"):
        models.build(f"{nets}:loose")


@pytest.mark.parametrize(("give", "output"), [("dict", "map"), ("tuple", "1"), ("tuple", "-1")])
def test_output_picks_from_what_a_class_of_models_returns(
    nets: str, give: str, output: str
) -> None:
    embedder = models.build(f"{nets}:Mapped,give={give},output={output},seed=2")
    plain = models.build(f"{nets}:Mapped,give=map,seed=2")
    assert torch.equal(embedder(pictures()), plain(pictures()))


@pytest.mark.parametrize(
    ("give", "came"), [("dict", "a dict of map, n"), ("tuple", "a tuple of 2"), ("text", "a str")]
)
def test_without_output_the_error_names_what_came(nets: str, give: str, came: str) -> None:
    with pytest.raises(UserError, match=f"the model returns {came}.*output="):
        models.build(f"{nets}:Mapped,give={give}")


def test_what_is_no_model_or_cannot_be_imported_is_named(nets: str) -> None:
    with pytest.raises(PluginError, match="'number' gave a int"):
        models.build(f"{nets}:number")
    with pytest.raises(PluginError, match="AttributeError.*nothing"):
        models.build(f"{nets}:nothing")
    with pytest.raises(PluginError, match="ModuleNotFoundError"):
        models.build("nowhere.at_all:net")


def test_a_source_is_shown_with_its_own_arguments_and_the_added_ones(nets: str) -> None:
    found = registry.signature(registry.factory("models", f"{nets}:plain")).parameters
    assert list(found)[:2] == ["width", "dim"]


@pytest.mark.parametrize("channels", [1, 4, 6])
@pytest.mark.parametrize(
    "spec", ["timm:test_efficientnet,size=32", "timm:test_vit,size=32", "smallconv:width=4"]
)
def test_a_model_takes_as_many_channels_as_it_is_told(spec: str, channels: int) -> None:
    embedder = models.build(f"{spec},channels={channels},seed=0").eval()
    x = torch.rand(2, channels, 32, 32)
    assert embedder(x).shape == (2, embedder.num_features)
    assert embedder.mean.shape == (1, channels, 1, 1)
    with pytest.raises(UserError, match=rf"\(N,{channels},H,W\)"):
        embedder(torch.rand(2, 3, 32, 32))
    if channels > 1:
        grey = x[:, :1]
        assert torch.equal(embedder(grey), embedder(grey.repeat(1, channels, 1, 1)))


def test_other_channels_are_normalised_by_the_average_of_the_models_own() -> None:
    embedder = models.build("timm:resnet10t,channels=6,size=32")
    assert embedder.mean.flatten().tolist() == pytest.approx([(0.485 + 0.456 + 0.406) / 3] * 6)
    assert embedder.std.flatten().tolist() == pytest.approx([(0.229 + 0.224 + 0.225) / 3] * 6)
    same = models.build("timm:resnet10t,channels=3,size=32")
    assert same.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])


def test_a_bare_module_is_given_as_many_channels_as_its_first_convolution_takes(nets: str) -> None:
    embedder = models.build(f"{nets}:wide")
    assert embedder(pictures(6)).shape == (2, 4)
    assert torch.allclose(
        embedder(pictures(1)), embedder(pictures(1).repeat(1, 6, 1, 1)), atol=1e-6
    )
