"""An attack: a goal, a threat and a solver, run so that the model does not notice."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

import torch
from msgspec import Meta
from torch import Generator, Tensor

from dmltk.attacks.guard import Mode, guard, seeded
from dmltk.attacks.probe import Objective, Probe, differentiable
from dmltk.attacks.threat import Threat
from dmltk.batch import Batch
from dmltk.errors import DmltkError, UserError

TOLERANCE = 1e-6
"""How far pixels may lie outside [0, 1] at an attack's door."""

Found = tuple[Tensor, Tensor | None, Tensor | None]
"""Adversarial pictures, their loss, and the first loss on the way to them."""


class Goal(Protocol):
    """What an attack wants of the embedding.

    Three attributes may be declared. `zero_at_start = True`: the loss has no gradient at the clean
    pictures, so a solver must start elsewhere. `takes_heads = True`: the objective is handed a
    dict of several heads. `joint = True`: the pictures of a batch move together, so only the last
    iterate of a single start is theirs; the loss may be one number for the batch.

    The objective that `prepare` returns may have a method `figures`: embeddings (N, D) -> what it
    reports of each picture, (N,) by name.
    """

    def prepare(self, probe: Probe, batch: Batch, generator: Generator) -> Objective:
        """Embeddings (N, D) -> loss, (N,) per picture or () for the batch; it is minimised."""


class Solver(Protocol):
    """How the allowed pictures are searched.

    Four attributes may be declared: `start = 0` for a start at the clean pictures,
    `select = "best"` where each picture's best iterate is returned, `gradient_free = True`
    where only losses are asked for, so that a model without a gradient will do, and `needs_norm`
    where it works under a threat of that norm alone.
    """

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """Adversarial pictures inside the threat; `images` themselves where nothing is done."""


Goal.dmltk_kind = "goals"  # type: ignore[attr-defined]  # set here: no duty of implementations
Solver.dmltk_kind = "solvers"  # type: ignore[attr-defined]


@dataclass(frozen=True)
class AttackResult:
    """Adversarial pictures, and what they cost.

    Args:
        images: (N, C, H, W), detached, of the type and on the device of the clean ones.
        loss: the goal's loss at `images`, (N,) or (); None where it was not evaluated.
        start_loss: the first loss the solver saw, at its start; None where there was none.
        linf: (N,) the largest change of any pixel of each picture.
        l2: (N,) the Euclidean length of each picture's change.
        forwards: pictures that went through the model.
        backwards: pictures whose gradient was taken.
        zero_gradients: how many of those gradients were exactly zero.
        figures: what the goal reports of embeddings of the pictures, (N,) by name, where it does.
    """

    images: Tensor
    loss: Tensor | None
    start_loss: Tensor | None
    linf: Tensor
    l2: Tensor
    forwards: int
    backwards: int
    zero_gradients: int
    figures: Callable[[Tensor], dict[str, Tensor]] | None = None


@dataclass(frozen=True)
class Attack:
    """A goal sought inside a threat by a solver.

    Args:
        goal: what is wanted of the embedding.
        solver: how the allowed pictures are searched.
        threat: what may be done to a picture.
        restarts: runs of the solver; each picture's lowest loss is kept.
        mode: `eval`, or `train` to leave a training model on the statistics of the batch.
        eot: forward passes of which each loss and gradient is the mean, for a model that draws
            at random (Athalye et al. 2018, expectation over transformation); above 1 those draws
            follow from the generator.
    """

    goal: Goal
    solver: Solver
    threat: Threat = field(default_factory=Threat)
    restarts: Annotated[int, Meta(ge=1)] = 1
    mode: Mode = "eval"
    eot: Annotated[int, Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        if self.eot < 1:
            raise UserError(f"eot={self.eot}: at least one pass is needed")
        if getattr(self.goal, "zero_at_start", False) and getattr(self.solver, "start", None) == 0:
            raise UserError(
                f"the goal {type(self.goal).__name__.lower()} has no gradient at the clean "
                "pictures: take a solver with a random start, such as pgd"
            )
        needed = getattr(self.solver, "needs_norm", self.threat.norm)
        if self.threat.norm != needed:
            raise UserError(
                f"{type(self.solver).__name__.lower()} keeps to no {self.threat.norm} ball:"
                f" write norm={needed}"
            )
        if getattr(self.goal, "joint", False):
            self._check_joint()

    def __call__(
        self, embed: Callable[[Tensor], Any], batch: Batch, *, generator: Generator
    ) -> AttackResult:
        """Attacks the pictures of a batch.

        Args:
            embed: pictures (N, C, H, W) -> embeddings (N, D): a module or any callable; one
                that declares `differentiable = False` is for solvers that need no gradient.
            batch: the pictures, float32 or float64 in [0, 1], and what the goal asks for.
            generator: on the CPU; every draw of the attack comes from it.

        Raises:
            UserError: for pictures, a batch or a model that this attack cannot take.
            DmltkError: for a loss or gradient that is not finite.
        """
        check_images(batch.images)
        if generator.device.type != "cpu":
            raise UserError("an attack draws from a generator on the CPU: torch.Generator()")
        gradients = not getattr(self.solver, "gradient_free", False)
        if gradients and not differentiable(embed):
            raise UserError(
                "the model declares that it has no gradient and this solver needs one: take a "
                "solver that needs none, such as nes or square"
            )
        if self.threat.largest == 0:
            return _result((batch.images, None, None), batch.images, Probe(embed))
        with guard(embed, self.mode), self._draws(generator):
            usable = _usable(batch)
            heads = getattr(self.goal, "takes_heads", False)
            probe = Probe(embed, heads, gradients=gradients, passes=self.eot)
            probe.objective = self.goal.prepare(probe, usable, generator)
            adv, loss, start_loss = self._search(probe, usable.images, generator)
            if adv is usable.images:
                adv = batch.images
            return _result((adv, loss, start_loss), usable.images, probe)

    def _draws(self, generator: Generator) -> AbstractContextManager[None]:
        """The global random state, which a model draws from, set where its draws matter."""
        if self.eot == 1:
            return nullcontext()
        return seeded(int(torch.randint(2**31, (), generator=generator)))

    def _search(self, probe: Probe, images: Tensor, generator: Generator) -> Found:
        kept: Found | None = None
        for _ in range(self.restarts):
            probe.first_loss = None
            adv = self.solver(probe, images, self.threat, generator)
            if adv is images:
                return adv, None, None
            self._check(adv, images)
            known = probe.recall(adv)
            adv = self.threat.quantized(adv, images)
            loss = known if known is None and self.restarts == 1 else probe.loss(adv)
            found = (adv.detach(), loss, probe.first_loss)
            kept = found if kept is None else _lower(kept, found)
        if kept is None:
            raise UserError(f"restarts={self.restarts}: at least one is needed")
        return kept

    def _check_joint(self) -> None:
        name = type(self.goal).__name__.lower()
        moved = f"the goal {name} moves the pictures of a batch together, so none has a best"
        if getattr(self.solver, "select", "last") == "best":
            raise UserError(f"{moved} iterate of its own: take pgd with select=last, bim or mim")
        if self.restarts > 1:
            raise UserError(f"{moved} start of its own: leave restarts out")

    def _check(self, adv: Tensor, images: Tensor) -> None:
        name = type(self.solver).__name__
        if adv.shape != images.shape or adv.dtype != images.dtype:
            raise DmltkError(
                f"the solver {name} returned {adv.dtype} of shape {tuple(adv.shape)} "
                f"for pictures of {images.dtype} and shape {tuple(images.shape)}"
            )
        if not self.threat.allows(adv, images):
            raise DmltkError(f"the solver {name} returned pictures that the threat does not allow")


def check_images(images: Tensor) -> None:
    """Refuses what no attack can take: other types than float32 and float64, other ranges.

    Raises:
        UserError: naming what came and what to do.
    """
    if images.dtype not in (torch.float32, torch.float64):
        raise UserError(
            f"pictures came as {images.dtype}; an attack keeps them in float32 or float64 "
            "(the model may be of any precision): convert them with .float()"
        )
    if images.ndim != 4 or len(images) == 0:
        raise UserError(f"pictures of shape {tuple(images.shape)} came; (N, C, H, W) is needed")
    low, high = (bound.item() for bound in images.detach().aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError("the pictures hold values that are not finite (NaN or infinite)")
    if low < -TOLERANCE or high > 1 + TOLERANCE:
        cause = (
            "they look like 0 to 255: divide by 255"
            if low >= 0 and high > 2
            else "they look normalized: the model normalizes, its pictures are pixels"
        )
        raise UserError(f"pixels lie in [{low:g}, {high:g}] instead of [0, 1]; {cause}")


def _usable(batch: Batch) -> Batch:
    """The same batch without tensors of inference mode and without graphs."""

    def plain(tensor: Any) -> Any:
        if tensor is None:
            return None
        return tensor.clone() if tensor.is_inference() else tensor.detach()

    reference = batch.reference
    if reference is not None:
        reference = replace(
            reference, embeddings=plain(reference.embeddings), labels=plain(reference.labels)
        )
    return replace(
        batch,
        images=plain(batch.images),
        labels=plain(batch.labels),
        index=plain(batch.index),
        reference=reference,
        extra={name: plain(tensor) for name, tensor in batch.extra.items()},
    )


def _lower(old: Found, new: Found) -> Found:
    """Picture by picture, the one of lower loss."""
    if old[1] is None or new[1] is None or new[1].ndim == 0:
        raise UserError("restarts need a loss per picture; this goal's is one for the whole batch")
    better = new[1] < old[1]
    images = torch.where(better.view(-1, 1, 1, 1), new[0], old[0])
    start = None if old[2] is None or new[2] is None else torch.where(better, new[2], old[2])
    return images, torch.where(better, new[1], old[1]), start


def _result(found: Found, images: Tensor, probe: Probe) -> AttackResult:
    adv, loss, start_loss = found
    change = (adv - images).detach().flatten(1)
    return AttackResult(
        images=adv,
        loss=loss,
        start_loss=start_loss,
        linf=change.abs().amax(1),
        l2=torch.linalg.vector_norm(change, dim=1),
        forwards=probe.forwards,
        backwards=probe.backwards,
        zero_gradients=probe.zero_gradients,
        figures=getattr(probe.objective, "figures", None),
    )
