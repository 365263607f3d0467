"""What every loss must do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError
from dmltk.testing import samples
from dmltk.testing.part import Part, Skip

VIEWS = (1, 2)


def use(part: Part) -> Tensor:
    """Its value for twelve embeddings of four classes."""
    return _value(part.build(), *samples.embeddings()).detach()


def check_it_is_a_module(part: Part) -> None:
    """Its parameters and state are saved and trained with the model's."""
    assert isinstance(part.build(), nn.Module), "a loss must be a torch.nn.Module"


def check_one_finite_number(part: Part) -> None:
    """A scalar, connected to the embeddings, with a finite gradient."""
    z, labels = samples.embeddings()
    leaf = z.requires_grad_()
    value = _value(part.build(), leaf, labels)
    assert value.shape == (), f"the loss has shape {tuple(value.shape)}: it must be one number"
    assert torch.isfinite(value), "the loss is not finite"
    assert value.requires_grad, "the loss is not connected to the embeddings"
    (gradient,) = torch.autograd.grad(value, leaf)
    assert torch.isfinite(gradient).all(), "the gradient is not finite"


def check_embeddings_are_not_written_into(part: Part) -> None:
    """It works on copies of embeddings and labels."""
    z, labels = samples.embeddings()
    before = z.clone(), labels.clone()
    _value(part.build(), z, labels)
    assert torch.equal(z, before[0]) and torch.equal(labels, before[1]), "it writes into its input"


def check_degenerate_batches_are_defined(part: Part) -> None:
    """One class, all distinct, all alike, one picture: finite, or refused in a sentence."""
    z, labels = samples.embeddings()
    cases = {
        "one class": (z, torch.zeros_like(labels)),
        "no two of a class": (z[:4], labels[:4]),
        "all embeddings alike": (z[:1].expand(12, -1).clone(), labels),
        "one picture": (z[:1], labels[:1]),
    }
    for name, (given, owners) in cases.items():
        leaf = given.clone().requires_grad_()
        try:
            value = _value(part.build(), leaf, owners)
        except DmltkError:
            continue
        assert torch.isfinite(value), f"{name}: the loss is not finite"
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
            assert gradient is None or torch.isfinite(gradient).all(), (
                f"{name}: the gradient is not finite"
            )


def check_half_precision_is_computed_in_full(part: Part) -> None:
    """Embeddings in bfloat16 under autocast: as those embeddings in float32."""
    z, labels = samples.embeddings()
    half = z.bfloat16()
    wanted = _value(part.build(), half.float(), labels)
    with torch.autocast("cpu", torch.bfloat16):
        found = _value(part.build(), half, labels)
    assert found.dtype == torch.float32, f"under autocast the loss is {found.dtype}, not float32"
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5), (
        f"under autocast it is {found.item():.6g}, in float32 {wanted.item():.6g}"
    )


def check_the_order_of_pictures_does_not_matter(part: Part) -> None:
    """Pictures in another order give the same value."""
    z, labels = samples.embeddings()
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one = _value(part.build(), z, labels)
        torch.manual_seed(0)
        two = _value(part.build(), z[order], labels[order])
    assert torch.allclose(one, two, rtol=1e-4, atol=1e-6), (
        f"in another order the loss is {two.item():.6g}, not {one.item():.6g}"
    )


def check_its_parameters_learn(part: Part) -> None:
    """Parameters of its own get finite gradients."""
    loss = part.build()
    if not list(loss.parameters()):
        raise Skip("it has no parameters")
    _value(loss, samples.embeddings()[0].requires_grad_(), samples.embeddings()[1]).backward()
    grads = [p.grad for p in loss.parameters() if p.requires_grad]
    assert any(g is not None for g in grads), "none of its parameters gets a gradient"
    assert all(torch.isfinite(g).all() for g in grads if g is not None)


def check_its_state_comes_back(part: Part) -> None:
    """A state dict loaded into a fresh one gives the same value."""
    z, labels = samples.embeddings()
    used, fresh = part.build(), part.build(seed=1)
    _value(used, *samples.embeddings(seed=1))
    fresh.load_state_dict(used.state_dict())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one = _value(used, z, labels)
        torch.manual_seed(0)
        two = _value(fresh, z, labels)
    assert torch.equal(one, two), "what its state dict holds does not give the loss back"


def _value(loss: nn.Module, z: Tensor, labels: Tensor) -> Tensor:
    """The loss of one tensor, or of two for a loss that compares views."""
    index = torch.arange(len(z))
    refusal: Exception | None = None
    for views in VIEWS:
        try:
            found: Tensor = loss(*[z.clone()] * views, labels=labels, index=index)
            return found
        except (UserError, TypeError) as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal
