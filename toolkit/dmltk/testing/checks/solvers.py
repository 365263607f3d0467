"""What every solver must do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dmltk.attacks import Threat
from dmltk.attacks.probe import Probe
from dmltk.errors import UserError
from dmltk.testing import samples
from dmltk.testing.part import Part, Skip


def use(part: Part) -> Tensor:
    """Twelve tiny pictures, brought nearer to a corner of the embedding space."""
    return _solved(part.build())[0]


def check_pictures_stay_within_the_threat(part: Part) -> None:
    """Its pictures are those that the threat allows, of the same shape and type."""
    solver = part.build()
    for norm, eps in (("linf", 0.03), ("l2", 0.5), ("none", 1.0)):
        if norm != getattr(solver, "needs_norm", norm):
            continue
        threat = Threat(eps=eps, norm=norm)  # type: ignore[arg-type]
        for dtype in (torch.float32, torch.float64):
            clean = samples.batch(dtype=dtype).images
            try:
                found, _ = _solved(solver, clean, threat)
            except UserError:
                assert norm != "linf", "it refuses norm=linf and declares no `needs_norm`"
                continue
            assert found.shape == clean.shape and found.dtype == dtype, (
                f"{dtype} {tuple(clean.shape)} become {found.dtype} {tuple(found.shape)}"
            )
            allowed = threat.project(found, clean)
            assert torch.allclose(found, allowed, atol=1e-6), (
                f"pictures leave the {norm} ball or the box: end with threat.project(adv, images)"
            )


def check_clean_pictures_are_not_written_into(part: Part) -> None:
    """It works on copies."""
    clean = samples.batch().images
    before = clean.clone()
    _solved(part.build(), clean)
    assert torch.equal(clean, before), "it writes into the clean pictures"


def check_the_generator_decides(part: Part) -> None:
    """One seed gives one result, whatever torch's global random state."""
    found = []
    with torch.random.fork_rng(devices=[]):
        for state in (1, 2):
            torch.manual_seed(state)
            found.append(_solved(part.build())[0])
    assert torch.equal(*found), "the result hangs on torch's global random state"


def check_the_loss_falls(part: Part) -> None:
    """The mean loss afterwards is not above that of the clean pictures."""
    solver = part.build()
    if getattr(solver, "tries", 0) == 1:
        raise Skip("it looks at no loss")
    clean = samples.batch().images
    found, loss = _solved(solver, clean)
    before, after = loss(clean).mean(), loss(found).mean()
    assert after <= before + 1e-6, f"the loss rises from {before:.4g} to {after:.4g}"


def check_a_start_at_the_pictures_is_declared(part: Part) -> None:
    """`start = 0` means: the first loss that is asked for is that of the clean pictures."""
    solver = part.build()
    if getattr(solver, "start", None) != 0:
        raise Skip("it declares no start at the clean pictures")
    clean = samples.batch().images
    probe = _probe()
    solver(probe, clean, _threat(solver), torch.Generator().manual_seed(0))
    if probe.first_loss is None:
        raise Skip("it asks for no loss")
    wanted = _probe().loss(clean)
    assert torch.allclose(probe.first_loss, wanted, atol=1e-6), (
        "it declares `start = 0` and looks at other pictures first"
    )


def check_gradient_free_means_no_gradient(part: Part) -> None:
    """A solver that declares `gradient_free = True` asks for none."""
    solver = part.build()
    if not getattr(solver, "gradient_free", False):
        raise Skip("it does not declare that it is free of gradients")
    probe = _probe()
    solver(probe, samples.batch().images, _threat(solver), torch.Generator().manual_seed(0))
    assert probe.backwards == 0, "it declares `gradient_free = True` and asks for gradients"


def _threat(solver: Any) -> Threat:
    norm: Any = getattr(solver, "needs_norm", "linf")
    return Threat(eps=1.0 if norm == "none" else 8 / 255, norm=norm)


def _probe() -> Probe:
    model = samples.model("none").requires_grad_(False)
    probe = Probe(model)
    corner = torch.nn.functional.normalize(torch.ones(1, model.embedding_size), dim=1)
    probe.objective = lambda z: (z - corner.to(z)).square().sum(1)
    return probe


def _solved(
    solver: Any, clean: Tensor | None = None, threat: Threat | None = None
) -> tuple[Tensor, Any]:
    clean = samples.batch().images if clean is None else clean
    draws = torch.Generator().manual_seed(0)
    found = solver(_probe(), clean, threat or _threat(solver), draws)
    return found.detach(), lambda images: _probe().loss(images)
