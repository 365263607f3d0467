"""What every model source must do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dmltk.attacks.probe import differentiable
from dmltk.models import Embedder
from dmltk.testing.part import DIM, SIZE, Part, Skip


def use(part: Part) -> Tensor:
    """The embeddings of four pictures."""
    model = part.build().eval()
    with torch.no_grad():
        found: Tensor = model(_pictures(model))
    return found


def check_it_is_an_embedder(part: Part) -> None:
    """The factory gives a Source, an Embedder, or a module, of which the toolkit makes one."""
    assert isinstance(part.build(), Embedder)


def check_embeddings_are_rows_of_unit_length(part: Part) -> None:
    """(N, D) of float32, finite, of length 1."""
    z = use(part)
    assert z.shape == (4, part.build().embedding_size), f"four pictures give {tuple(z.shape)}"
    assert torch.isfinite(z).all(), "some embeddings are not finite"
    assert torch.allclose(z.norm(dim=1), torch.ones(4), atol=1e-4), "embeddings have no unit length"


def check_a_head_has_the_length_asked_for(part: Part) -> None:
    """`dim` is the embedding's length."""
    model = part.given(dim=DIM).eval()
    with torch.no_grad():
        assert model(_pictures(model)).shape == (4, DIM), f"dim={DIM} gives another length"


def check_a_picture_does_not_hang_on_those_beside_it(part: Part) -> None:
    """In evaluation a picture embeds the same alone and in a batch."""
    model = part.build().eval()
    images = _pictures(model)
    with torch.no_grad():
        whole, one = model(images), model(images[2:3])
    assert torch.allclose(whole[2:3], one, atol=1e-4), "alone a picture has another embedding"


def check_pictures_are_told_apart(part: Part) -> None:
    """Two different pictures do not embed alike."""
    z = use(part)
    assert not torch.allclose(z[0], z[1], atol=1e-6), "different pictures embed alike"


def check_gradients_reach_the_pictures(part: Part) -> None:
    """A model that does not declare `differentiable = False` can be attacked by gradients."""
    model = part.build().eval()
    if not differentiable(model):
        raise Skip("it declares that it gives no gradients")
    images = _pictures(model).requires_grad_()
    z = model(images)
    assert z.requires_grad, "embeddings carry no gradient: declare `differentiable = False`"
    (gradient,) = torch.autograd.grad(z[:, 0].sum(), images, allow_unused=True)
    assert gradient is not None, "no gradient reaches the pictures"
    assert torch.isfinite(gradient).all(), "the gradient of the pictures is not finite"
    assert (gradient != 0).any(), "no gradient reaches the pictures"


def check_its_state_comes_back(part: Part) -> None:
    """A state dict loaded into a model of other first weights gives the same embeddings."""
    model, other = part.given(seed=0).eval(), part.given(seed=1).eval()
    other.load_state_dict(model.state_dict())
    images = _pictures(model)
    with torch.no_grad():
        assert torch.equal(model(images), other(images)), "its state dict does not give it back"


def check_features_carry_no_mode(part: Part) -> None:
    """`eval()` twice is `eval()` once, and a pass in evaluation changes no buffer."""
    model = part.build().eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        model(_pictures(model))
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), f"a pass in evaluation changes {key}"


def _pictures(model: Any) -> Tensor:
    side = model.size or SIZE
    shape = 4, model.mean.shape[1], side, side
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))
