"""What every attack must do."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dmltk.batch import Batch, Reference
from dmltk.errors import UserError
from dmltk.testing import samples, strategies
from dmltk.testing.part import CLASSES, Part, Skip

TOLERANCE = 1e-5


def use(part: Part) -> Tensor:
    """Adversarial pictures of twelve tiny ones."""
    model = samples.model()
    return _attacked(part.build(), model, samples.batch(embed=model)).images


def check_pictures_stay_within_the_bound_and_the_box(part: Part) -> None:
    """Whatever the pictures' shape, type and the bound: distance at most eps, values in [0, 1]."""
    model = samples.model("none")

    @strategies.FEW
    @given(strategies.pictures(count=st.integers(2, 5)), st.floats(1e-3, 0.5))
    def holds(images: Tensor, eps: float) -> None:
        attack = part.build(eps=eps)
        result = _attacked(attack, model, _batch(model, images))
        found, threat = result.images, attack.threat
        assert found.shape == images.shape, f"{tuple(images.shape)} become {tuple(found.shape)}"
        assert found.dtype == images.dtype, f"{images.dtype} become {found.dtype}"
        assert torch.isfinite(found).all(), "some pixels are not finite"
        assert found.min() >= 0 and found.max() <= 1, "some pixels leave [0, 1]: clamp them"
        change = (found - images).flatten(1)
        size = {"linf": change.abs().amax(1), "l2": change.norm(dim=1)}.get(threat.norm)
        if size is not None:
            most = float(size.max())
            assert most <= threat.largest + TOLERANCE, (
                f"a picture is moved by {most:.4g}, more than eps={threat.largest:.4g}: project it"
            )
        assert torch.allclose(result.linf.to(change), change.abs().amax(1), atol=TOLERANCE), (
            "result.linf is not what was moved"
        )

    holds()


def check_a_bound_of_zero_changes_nothing(part: Part) -> None:
    """With eps=0 the pictures come back bit for bit."""
    if part.build().threat.norm == "none":
        raise Skip("only the box bounds it")
    model = samples.model()
    batch = samples.batch(embed=model)
    result = _attacked(part.given(eps=0.0), model, batch)
    assert torch.equal(result.images, batch.images), "eps=0 changes pictures"


def check_the_generator_decides(part: Part) -> None:
    """One seed gives one result, and torch's global random state has no say."""
    model = samples.model()
    attack, batch = part.build(), samples.batch(embed=model)
    with torch.random.fork_rng(devices=[]):
        found = []
        for state in (1, 2):
            torch.manual_seed(state)
            found.append(_attacked(attack, model, batch).images)
    assert torch.equal(*found), "the result hangs on torch's global random state"


def check_model_and_pictures_are_left_alone(part: Part) -> None:
    """Weights, gradients, statistics, modes, hooks and the batch are afterwards as before."""
    model = samples.model()
    model.train()
    model.backbone.eval()
    next(model.parameters()).requires_grad_(False)
    batch = samples.batch(embed=samples.model())
    tensors = {key: value.clone() for key, value in model.state_dict().items()}
    images = batch.images.clone()
    before = _surroundings(model)
    _attacked(part.build(), model, batch)
    for key, value in model.state_dict().items():
        assert torch.equal(value, tensors[key]), f"it changes the model's {key}"
    assert _surroundings(model) == before, "it changes modes, requires_grad or hooks of the model"
    assert all(p.grad is None for p in model.parameters()), "it leaves gradients on parameters"
    assert torch.equal(batch.images, images), "it writes into the clean pictures"


def check_it_works_without_gradients_around_it(part: Part) -> None:
    """Under ``torch.no_grad`` and on frozen weights the result is the same."""
    model = samples.model()
    attack, batch = part.build(), samples.batch(embed=model)
    plain = _attacked(attack, model, batch).images
    model.requires_grad_(False)
    with torch.no_grad():
        frozen = _attacked(attack, model, batch).images
    assert torch.equal(plain, frozen), "frozen weights or no_grad change the result"


def check_any_callable_can_be_attacked(part: Part) -> None:
    """A function that embeds, instead of a module."""
    model = samples.model()
    attack, batch = part.build(), samples.batch(embed=model)
    plain = _attacked(attack, model, batch).images
    called = _attacked(attack, lambda x: model(x), batch).images
    assert torch.equal(plain, called), "a function around the model is attacked otherwise"


def check_one_picture_is_enough(part: Part) -> None:
    """A batch of one, with a reference to aim at."""
    model = samples.model()
    whole = samples.batch(embed=model)
    assert whole.labels is not None and whole.index is not None
    one = Batch(whole.images[:1], whole.labels[:1], whole.index[:1], whole.reference)
    attack = part.build(targets_from="reference")
    assert _attacked(attack, model, one).images.shape == one.images.shape


def check_the_best_iterate_is_no_worse_than_the_start(part: Part) -> None:
    """Where each picture's best iterate is returned, its loss is at most that of the start."""
    model = samples.model()
    attack = part.build()
    if getattr(getattr(attack, "solver", None), "select", "") != "best":
        raise Skip("it does not claim to return the best iterate")
    result = _attacked(attack, model, samples.batch(embed=model))
    if result.loss is None or result.start_loss is None:
        raise Skip("it has no loss a picture")
    assert (result.loss <= result.start_loss + TOLERANCE).all(), (
        "select='best' and yet some pictures end with a higher loss than they began with"
    )


def check_more_steps_are_not_weaker(part: Part) -> None:
    """On a smooth model twelve steps end no higher than one, but for a tenth of what it gained."""
    model = samples.model("none")
    batch = samples.batch(embed=model)
    one, twelve = (_attacked(part.given(steps=n), model, batch) for n in (1, 12))
    if one.loss is None or one.start_loss is None:
        raise Skip("it reports no loss")
    first, last = one.loss.double().mean().item(), twelve.loss.double().mean().item()
    gained = one.start_loss.double().mean().item() - first
    assert last <= first + 0.1 * max(gained, 0) + TOLERANCE, (
        f"twelve steps end at a loss of {last:.4g}, one step at {first:.4g}"
    )


def check_passes_are_counted(part: Part) -> None:
    """`forwards` is at least what the model saw, without the pictures seen for free."""
    model = samples.model()
    batch = samples.batch(embed=model)
    seen = 0

    def counting(images: Tensor) -> Tensor:
        nonlocal seen
        seen += len(images)
        found: Tensor = model(images)
        return found

    result = _attacked(part.build(), counting, batch)
    assert result.forwards == seen, f"it counts {result.forwards} forward passes of {seen}"
    assert 0 <= result.backwards <= result.forwards


def check_a_model_without_gradients_is_attacked_or_refused(part: Part) -> None:
    """A model that declares `differentiable = False` is never asked for a gradient."""

    class Closed(nn.Module):
        differentiable = False

        def __init__(self) -> None:
            super().__init__()
            self.inner = samples.model()

        def forward(self, images: Tensor) -> Tensor:
            assert not images.requires_grad, "a closed model is handed pictures with a gradient"
            found: Tensor = self.inner(images).detach()
            return found

    closed = Closed().eval()
    attack = part.build()
    try:
        _attacked(attack, closed, samples.batch(embed=closed.inner))
    except UserError as error:
        solver = getattr(attack, "solver", attack)
        assert not getattr(solver, "gradient_free", False), f"it needs no gradient and yet: {error}"


def _attacked(attack: Any, embed: Any, batch: Batch) -> Any:
    return attack(embed, batch, generator=torch.Generator().manual_seed(0))


def _batch(model: nn.Module, images: Tensor) -> Batch:
    """A batch of these pictures, whose reference has each class twice and they themselves first."""
    labels = torch.arange(len(images)) % CLASSES
    draws = torch.Generator().manual_seed(0)
    more = torch.rand(2 * CLASSES, *images.shape[1:], generator=draws, dtype=images.dtype)
    with torch.no_grad():
        z = model(torch.cat([images, more]).float())
    known = torch.cat([labels, torch.arange(2 * CLASSES) % CLASSES])
    return Batch(images, labels, torch.arange(len(images)), Reference(z, known))


def _surroundings(model: nn.Module) -> list[object]:
    return [
        [(name, part.training) for name, part in model.named_modules()],
        [(name, p.requires_grad) for name, p in model.named_parameters()],
        [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()],
    ]
