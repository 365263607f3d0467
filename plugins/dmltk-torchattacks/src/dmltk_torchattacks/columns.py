"""Models for torchattacks: pictures in, logits out, every pass through the toolkit's probe."""

from __future__ import annotations

from typing import Any, Literal

import torch
from dmltk.attacks import Probe
from dmltk.errors import DmltkError, UserError
from torch import Tensor, nn
from torch.autograd import Function

from dmltk_torchattacks.bank import Bank


class _Model(nn.Module):
    """What all have: torchattacks takes the device from a parameter.

    The embedder is no part of this module, so its mode stays the toolkit's business.

    Args:
        probe: embeds, and counts.
        images: (N, C, H, W) that are attacked; their precision is the probe's.
    """

    def __init__(self, probe: Probe, images: Tensor) -> None:
        super().__init__()
        self.place = nn.Parameter(images.new_zeros(()), requires_grad=False)
        self.probe, self.dtype, self.count = probe, images.dtype, len(images)


class TwoColumns(_Model):
    """Logits [s, 0] with s the goal's loss: label 0, untargeted, lowers s.

    Where a gradient is asked for, s is the loss minus its own value, so that the cross-entropy
    weighs the gradients of all pictures at all times alike, by -1/2, however large the loss is.

    Args:
        probe: with the objective.
        images: (N, C, H, W) that are attacked.
        rows: how copies of the batch are laid out, see `table.Row`.
    """

    def __init__(self, probe: Probe, images: Tensor, rows: Literal["each", "tile"] | None) -> None:
        super().__init__(probe, images)
        self.rows = rows

    def forward(self, images: Tensor) -> Tensor:
        """(n, 2)."""
        loss = self.loss(images).to(images.dtype)
        return torch.stack([loss, torch.zeros_like(loss)], 1)

    def loss(self, images: Tensor) -> Tensor:
        """(n,)."""
        images = images.to(self.dtype)
        if self.rows is None:
            return self._one(images)
        dim = 1 if self.rows == "each" else 0
        shape = (self.count, -1) if self.rows == "each" else (-1, self.count)
        copies = images.reshape(*shape, *images.shape[1:]).unbind(dim)
        return torch.stack([self._one(copy) for copy in copies], dim).flatten()

    def _one(self, images: Tensor) -> Tensor:
        if images.requires_grad and torch.is_grad_enabled():
            return _Descent.apply(images, self.probe)
        return self.probe.loss(images).expand(len(images))


class BankColumns(_Model):
    """Logits by nearest class centre.

    Args:
        probe: whose objective is the bank.
        images: (N, C, H, W) that are attacked.
        bank: the centres.
    """

    def __init__(self, probe: Probe, images: Tensor, bank: Bank) -> None:
        super().__init__(probe, images)
        self.bank = bank

    def forward(self, images: Tensor) -> Tensor:
        """(n, K)."""
        kept = images.to(self.dtype)
        if kept.requires_grad and torch.is_grad_enabled():
            return self.bank.logits(_Embedding.apply(kept, self.probe)).to(images.dtype)
        with torch.no_grad():
            return self.bank.logits(self.probe.forward(kept, kept)).to(images.dtype)


class _Descent(Function):
    """Zero, with the gradient of the probe's objective."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, probe: Probe) -> Tensor:
        with torch.enable_grad():
            _, grad = probe.gradient(images)
        ctx.save_for_backward(_strided(grad, images))
        return images.new_zeros(len(images))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (grad,) = ctx.saved_tensors
        return upstream[0].view(-1, 1, 1, 1) * grad, None


class _Embedding(Function):
    """Embeddings whose gradient goes to the pictures and to no weight; may be asked for often."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, probe: Probe) -> Tensor:
        leaf = images.detach().requires_grad_()
        with torch.enable_grad():
            z: Tensor = probe.forward(leaf, images)
        if not z.requires_grad:
            raise UserError(
                "the embeddings carry no gradient back to the pictures: hand over a model that "
                "does not detach its output, or an attack that needs no gradient"
            )
        ctx.graph = (leaf, z, probe)
        return z.detach()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        leaf, z, probe = ctx.graph
        (grad,) = torch.autograd.grad(z, leaf, upstream[0], retain_graph=True)
        if bool((_finite(leaf) & ~_finite(grad)).any()):
            raise DmltkError("the gradient of the attack's loss is not finite (NaN or infinite)")
        probe.backwards += len(grad)
        probe.zero_gradients += int((grad == 0).flatten(1).all(1).sum())
        return _strided(grad, leaf), None


def _finite(pictures: Tensor) -> Tensor:
    """(n,) whether all of a picture is: a class may lose one to a division by zero."""
    return torch.isfinite(pictures).flatten(1).all(1)


def _strided(grad: Tensor, images: Tensor) -> Tensor:
    """Contiguous where the pictures are, whatever the model does inside."""
    return grad.contiguous() if images.is_contiguous() else grad
