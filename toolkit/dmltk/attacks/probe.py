"""All that a goal or a solver sees of the model."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError

Objective = Callable[[Any], Tensor]
"""Embeddings (N, D) -> loss (N,), or () for a loss of the whole batch; minimised."""


class Probe:
    """Embeddings, losses and gradients of a model, counted in picture-passes.

    Pictures keep their precision outside the model; embeddings come back as float32, or
    float64 where the pictures are. The last pictures embedded are remembered by identity with
    their graph, so a goal that looks at the clean pictures and a solver that starts from them
    share one pass.

    Args:
        embed: pictures (N, C, H, W) -> embeddings (N, D).
        takes_heads: whether the objective is handed a dict of several heads.
        gradients: whether a gradient may be asked for; without, no pass keeps a graph and the
            model is handed pictures that require none.
        passes: forward passes of which each loss and gradient is the mean; above 1 each of them
            is a new one.

    Attributes:
        objective: what is minimised; set once the goal is prepared.
        forwards: pictures that went through the model.
        backwards: pictures whose gradient was taken.
        zero_gradients: how many of those gradients were exactly zero.
        first_loss: the first loss that was evaluated, or None.
    """

    def __init__(
        self,
        embed: Callable[[Tensor], Any],
        takes_heads: bool = False,
        *,
        gradients: bool = True,
        passes: int = 1,
    ) -> None:
        self.objective: Objective | None = None
        self.forwards = self.backwards = self.zero_gradients = 0
        self.first_loss: Tensor | None = None
        self._embed = embed
        self._dtype = _model_dtype(embed)
        self._takes_heads = takes_heads
        self._gradients = gradients
        self._passes = passes
        self._last: tuple[Tensor, int, Tensor, Any] | None = None
        self._losses: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def embed(self, images: Tensor) -> Any:
        """Embeddings (N, D) of pictures, detached (a dict of them for an objective over heads)."""
        _, output = self._pass(images)
        return _each(output, Tensor.detach)

    def loss(self, images: Tensor) -> Tensor:
        """The objective at pictures, (N,) or (), detached; a new pass keeps no graph."""
        if (known := self.recall(images)) is not None:
            return known
        (loss,) = self._mean(self._loss, images)
        self.remember(images, loss)
        return loss

    def gradient(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective at pictures, (N,) or (), and its gradient there, (N, C, H, W)."""
        loss, grad = self._mean(self._gradient, images)
        self.remember(images, loss)
        return loss, grad

    def recall(self, images: Tensor) -> Tensor | None:
        """The loss of these very pictures, where it was evaluated before."""
        found = self._losses.get(id(images))
        if found is None or found[0]() is not images or found[1] != images._version:
            return None
        return found[2]

    def remember(self, images: Tensor, loss: Tensor) -> None:
        """Notes the loss of these very pictures, for `recall`."""
        if self.first_loss is None:
            self.first_loss = loss
        self._losses = {key: kept for key, kept in self._losses.items() if kept[0]() is not None}
        self._losses[id(images)] = (weakref.ref(images), images._version, loss)

    def _mean(
        self, once: Callable[[Tensor], tuple[Tensor, ...]], images: Tensor
    ) -> tuple[Tensor, ...]:
        """What one pass gives, or the mean of what several new ones give."""
        if self._passes > 1:
            self._last = None
        total = once(images)
        for _ in range(self._passes - 1):
            total = tuple(a + b for a, b in zip(total, once(images), strict=True))
        return tuple(part / self._passes for part in total)

    def _loss(self, images: Tensor) -> tuple[Tensor]:
        if self._remembers(images):
            output = self._pass(images)[1]
        else:
            self._last = None
            with torch.no_grad():
                output = self.forward(images, images)
        with torch.no_grad():
            return (self._evaluate(output, images),)

    def _gradient(self, images: Tensor) -> tuple[Tensor, Tensor]:
        leaf, output = self._pass(images)
        self._last = None
        loss = self._evaluate(output, images)
        if not loss.requires_grad:
            raise UserError(
                "the embeddings carry no gradient back to the pictures: hand over a model that "
                "does not detach its output, or a solver that needs no gradient"
            )
        (grad,) = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)
        if grad is None:
            raise UserError("the loss does not depend on the pictures that are attacked")
        if not bool(torch.isfinite(grad).all()):
            raise DmltkError("the gradient of the attack's loss is not finite (NaN or infinite)")
        self.backwards += len(images)
        self.zero_gradients += int((grad == 0).flatten(1).all(1).sum())
        return loss.detach(), grad

    def _remembers(self, images: Tensor) -> bool:
        return (
            self._last is not None and self._last[0] is images and self._last[1] == images._version
        )

    def _pass(self, images: Tensor) -> tuple[Tensor, Any]:
        if self._last is None or not self._remembers(images):
            self._last = None
            leaf = images.detach().requires_grad_(self._gradients)
            with nullcontext() if self._gradients else torch.no_grad():
                self._last = (images, images._version, leaf, self.forward(leaf, images))
        return self._last[2], self._last[3]

    def forward(self, leaf: Tensor, images: Tensor) -> Any:
        """Embeddings with their graph; the pass is counted.

        Args:
            leaf: pictures that go through the model.
            images: of the precision in which the embeddings come back.
        """
        output = self._embed(leaf if self._dtype is None else leaf.to(self._dtype))
        self.forwards += len(images)
        heads = self._takes_heads or getattr(self.objective, "takes_heads", False)
        _check_output(output, len(images), heads)
        dtype = torch.float64 if images.dtype == torch.float64 else torch.float32
        return _each(output, lambda z: z.to(dtype))

    def _evaluate(self, output: Any, images: Tensor) -> Tensor:
        if self.objective is None:
            raise DmltkError("a loss was asked for before the goal was prepared")
        with torch.autocast(images.device.type, enabled=False):
            loss = self.objective(output)
        if loss.shape not in ((), (len(images),)):
            raise UserError(
                f"the goal's loss has shape {tuple(loss.shape)}; it must be ({len(images)},), "
                "one number a picture, or a single number for the whole batch"
            )
        if not bool(torch.isfinite(loss).all()):
            raise DmltkError("the attack's loss is not finite (NaN or infinite)")
        return loss


def differentiable(embed: object) -> bool:
    """Whether neither a model nor a part of it declares `differentiable = False`."""
    owner = getattr(embed, "__self__", embed)
    parts = owner.modules() if isinstance(owner, nn.Module) else (embed, owner)
    return all(getattr(part, "differentiable", True) is not False for part in parts)


def _model_dtype(embed: object) -> torch.dtype | None:
    """The floating type of a module's weights; None where there are none to ask."""
    if not isinstance(embed, nn.Module):
        return None
    tensors = itertools.chain(embed.parameters(), embed.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), None)


def _each(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(output, dict):
        return {name: change(z) for name, z in output.items()}
    return change(output)


def _check_output(output: object, count: int, heads: bool) -> None:
    if heads and isinstance(output, dict):
        for z in output.values():
            _check_output(z, count, heads=False)
        return
    if not isinstance(output, Tensor):
        came = type(output).__name__
        if isinstance(output, dict):
            came += f" with keys {', '.join(map(str, output))}"
        elif isinstance(output, (tuple, list)):
            came += f" of {len(output)}"
        raise UserError(
            f"the model returned a {came} where embeddings (N, D) are needed: "
            "pick one with output=, or wrap the model in a function that returns the tensor"
        )
    if output.ndim != 2 or len(output) != count or not output.is_floating_point():
        raise UserError(
            f"the model returned {output.dtype} of shape {tuple(output.shape)} for {count} "
            f"pictures where floating embeddings ({count}, D) are needed"
        )
