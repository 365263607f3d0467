"""What every goal must do."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from dmltk.attacks.probe import Probe
from dmltk.batch import Batch
from dmltk.errors import UserError
from dmltk.testing import samples
from dmltk.testing.part import Part, Skip


def use(part: Part) -> Tensor:
    """The losses of embeddings other than those of the clean pictures."""
    _, objective, z = _prepared(part)
    found: Tensor = objective(z)
    return found.detach()


def check_one_finite_loss_a_picture(part: Part) -> None:
    """(N,) numbers, or one number for the whole batch."""
    _, objective, z = _prepared(part)
    loss = objective(z)
    assert loss.shape in ((), (len(z),)), (
        f"{len(z)} embeddings give a loss of shape {tuple(loss.shape)}: it must be ({len(z)},)"
    )
    assert torch.isfinite(loss).all(), "the loss is not finite"


def check_the_gradient_is_finite(part: Part) -> None:
    """The loss hangs on the embeddings, and its gradient there is finite."""
    _, objective, z = _prepared(part)
    leaf = z.clone().requires_grad_()
    loss = objective(leaf)
    assert loss.requires_grad, "the loss does not hang on the embeddings that it is given"
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    assert torch.isfinite(gradient).all(), "the gradient is not finite"
    assert (gradient != 0).any(), "the gradient is zero everywhere"


def check_a_pictures_loss_is_its_own(part: Part) -> None:
    """Without `joint`, the loss of a picture does not hang on the embeddings beside it."""
    built, objective, z = _prepared(part)
    if getattr(built, "joint", False):
        raise Skip("it declares that its pictures move together")
    loss = objective(z)
    if loss.ndim == 0:
        raise Skip("its loss is one number for the whole batch")
    moved = z.clone()
    moved[0] = -z[0]
    assert torch.allclose(objective(moved)[1:], loss[1:], atol=1e-6), (
        "the loss of a picture changes with another picture's embedding: declare `joint = True`"
    )


def check_what_it_aims_at_is_constant(part: Part) -> None:
    """The loss does not pull on weights through the clean pictures or the targets."""
    _, objective, z = _prepared(part)
    loss = objective(z.clone())
    assert not loss.requires_grad, (
        "the loss requires a gradient though the embeddings do not: detach what it aims at"
    )


def check_the_generator_decides_the_targets(part: Part) -> None:
    """One seed gives one loss, whatever torch's global random state."""
    found = []
    with torch.random.fork_rng(devices=[]):
        for state in (1, 2):
            torch.manual_seed(state)
            _, objective, z = _prepared(part)
            found.append(objective(z))
    assert torch.equal(*found), "the loss hangs on torch's global random state"


def check_double_precision_is_kept(part: Part) -> None:
    """Pictures in float64 give a loss in float64, close to that in float32."""
    single, double = (
        objective(z) for _, objective, z in (_prepared(part), _prepared(part, torch.float64))
    )
    assert double.dtype == torch.float64, f"pictures in float64 have a loss in {double.dtype}"
    assert torch.allclose(single.double(), double, atol=1e-3, rtol=1e-3), (
        "the loss in float64 is another one"
    )


def check_a_batch_without_labels_is_used_or_refused(part: Part) -> None:
    """What it cannot do without it refuses in a sentence, a UserError."""
    bare = Batch(samples.batch().images)
    with contextlib.suppress(UserError):
        part.build().prepare(Probe(samples.model()), bare, torch.Generator())


def _prepared(part: Part, dtype: torch.dtype = torch.float32) -> tuple[Any, Any, Tensor]:
    model = samples.model()
    batch = samples.batch(embed=model, dtype=dtype)
    goal = part.build()
    objective = goal.prepare(Probe(model), batch, torch.Generator().manual_seed(0))
    z = Probe(model).embed(samples.batch(seed=1, dtype=dtype).images)
    return goal, objective, z
