"""Sources of models and what the toolkit adds to each."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from dmltk import models, registry
from dmltk.errors import DmltkError, UserError
from dmltk.models import Embedder, Source, wrap
from torch import nn

ADDED = ["dim", "pool", "hidden", "unit", "output", "weights", "size", "seed"]


def plain(width: int = 4) -> nn.Module:
    """A single convolution.

    Args:
        width: its channels.

    Source: nowhere.
    """
    return nn.Conv2d(3, width, 3)


def owner(*, dim: int = 3, size: int = 9) -> nn.Module:
    """A source with a dim and a size of its own."""
    return nn.Conv2d(size, dim, 3)


def ready(width: int = 4) -> Embedder:
    """A finished embedder."""
    return Embedder(Source(nn.Conv2d(3, width, 3)))


def test_every_source_takes_its_own_arguments_and_the_added_ones() -> None:
    found = wrap(plain).signature_for({})
    assert list(found.parameters) == ["width", *ADDED]
    assert list(wrap(owner).signature_for({}).parameters) == [
        "dim",
        "size",
        *(name for name in ADDED if name not in ("dim", "size")),
    ]


def test_the_docstring_keeps_its_own_words_and_explains_what_is_added() -> None:
    text = inspect.getdoc(wrap(plain)) or ""
    assert text.startswith("A single convolution.")
    assert text.index("width: its channels") < text.index("dim: length") < text.index("Source:")
    assert "dim: length" in (inspect.getdoc(wrap(ready)) or "")


def test_a_source_keeps_its_own_meaning_of_an_added_name() -> None:
    embedder = wrap(owner)(dim=5, size=7)
    assert (embedder.embedding_size, embedder.size) == (5, None)
    assert len(embedder.heads["embed"]) == 0


def test_a_ready_embedder_gets_the_head_that_is_asked_for() -> None:
    assert wrap(ready)().embedding_size == 4
    embedder = wrap(ready)(dim=6, hidden=3, size=20)
    assert (embedder.embedding_size, embedder.size) == (6, 20)
    with pytest.raises(UserError, match="output=x"):
        wrap(ready)(output="x")


def test_a_judged_model_gets_no_random_projection() -> None:
    assert not any(key.startswith("embed") for key in models.build("smallconv").state_dict())


def test_the_dim_offered_in_training() -> None:
    assert registry.factory("models", "smallconv").train_dim == 64
    assert registry.factory("models", "timm").train_dim == 128


def test_context_is_taken_where_the_spec_does_not_say() -> None:
    context = {"dim": 64, "size": 32, "seed": 3, "device": "cpu"}
    embedder = models.build("smallconv:width=8", context=context)
    assert (embedder.embedding_size, embedder.size, embedder.num_features) == (64, 32, 32)
    assert models.build("smallconv:dim=5", context=context).embedding_size == 5


def test_a_seed_gives_the_same_weights_and_leaves_the_global_state() -> None:
    state = torch.get_rng_state()
    first, second = (models.build("smallconv:dim=5,seed=4") for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


@pytest.mark.parametrize("size", [1, 5, 32, 45])
def test_smallconv_takes_pictures_of_any_size(size: int) -> None:
    z = models.build("smallconv:width=2,channels=1").eval()(torch.rand(2, 1, size, size))
    assert z.shape == (2, 8)


def test_timm_knows_its_models_own_size_and_normalization() -> None:
    embedder = models.build("timm:test_vit")
    assert embedder.size == 160
    assert embedder.mean.flatten().tolist() == pytest.approx([0.5, 0.5, 0.5])
    smaller = models.build("timm:test_vit,size=32")
    assert smaller.size == 32
    assert smaller(torch.rand(2, 3, 32, 32)).shape == (2, 64)


def test_pools_other_than_the_models_own_only_where_they_mean_something() -> None:
    embedder = models.build("timm:resnet10t,pool=avgmax,unit=false,size=64").eval()
    x = (torch.rand(2, 3, 64, 64) - embedder.mean) / embedder.std
    features = embedder.backbone.forward_features(x)
    both = features.mean((2, 3)) + features.amax((2, 3))
    assert torch.allclose(embedder(x * embedder.std + embedder.mean), both, atol=1e-4)
    for name in ("test_vit", "mobilenetv3_small_050", "test_convnext"):
        with pytest.raises(UserError, match="no pool=max, only avg"):
            models.build(f"timm:{name},pool=max,size=64")


def test_an_unknown_timm_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'resnet50'"):
        models.build("timm:resnet5O")
    with pytest.raises(UserError, match="unknown timm model 'qqqq'"):
        models.build("timm:qqqq")


def test_an_argument_that_a_timm_model_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="does not take drop_path_rate"):
        models.build("timm:vgg11,drop_path=.1")


def test_pretrained_says_what_it_fetches_and_a_failure_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no way there\nmore")

    monkeypatch.setattr("dmltk.models.timm.create_model", broken)
    with (
        pytest.warns(UserWarning, match=r"fetches 'resnet50\.tv_in1k'"),
        pytest.raises(DmltkError, match=r"cannot be fetched \(no way there\).*weights=FILE"),
    ):
        models.build("timm:resnet50.tv_in1k,pretrained=true")


def test_checkpointing_gives_the_same_gradient() -> None:
    gradients = []
    for flag in ("false", "true"):
        embedder = models.build(f"timm:resnet10t,seed=0,checkpointing={flag}")
        embedder(torch.full((2, 3, 32, 32), 0.3)).pow(3).sum().backward()
        gradients.append([p.grad for p in embedder.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
