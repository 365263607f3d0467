"""The optimizer's parameter groups and its schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from timm.optim.lars import Lars
from timm.scheduler.cosine_lr import CosineLRScheduler
from timm.scheduler.step_lr import StepLRScheduler
from torch import nn

from dmltk.errors import UserError, unknown
from dmltk.training.config import Config


def make_optimizer(config: Config, model: Any, losses: nn.ModuleList) -> torch.optim.Optimizer:
    """The optimizer, in groups: backbone, heads, single routes, the losses' own parameters.

    The losses' parameters have no decay and a rate of their own.

    Args:
        config: of the run.
        model: a routed embedder.
        losses: one a term.

    Raises:
        UserError: `route_lr` names a route that shares its tensors with main.
    """
    seen: set[int] = set()

    def group(parameters: Iterable[nn.Parameter], lr: float, decay: float) -> dict[str, Any]:
        own = [p for p in parameters if p.requires_grad and id(p) not in seen]
        seen.update(id(p) for p in own)
        return {"params": own, "lr": lr, "weight_decay": decay}

    private = []
    for route, rate in config.route_lr.items():
        if route not in model.routes:
            raise unknown("route", route, model.routes, "route_lr")
        if model.routes[route] not in model.sets:
            raise UserError(
                f"route_lr.{route}: this route has no normalisers of its own under"
                f" --bn {config.pipeline.norms}; leave it out or use --bn kway"
            )
        held = model.sets.get_submodule(model.routes[route])
        private.append(group(held.parameters(), rate, config.weight_decay))
    rate = config.head_lr or config.lr
    heads = group(model.embedder.heads.parameters(), rate, config.weight_decay)
    body = group(model.parameters(), config.lr, config.weight_decay)
    own = [group(loss.parameters(), _rate(loss, config.lr), 0.0) for loss in losses]
    groups = [g for g in (body, heads, *private, *own) if g["params"]]
    if config.optimizer == "adam":
        return torch.optim.Adam(groups)
    kind = torch.optim.SGD if config.optimizer == "sgd" else Lars
    return kind(groups, lr=config.lr, momentum=config.momentum)


def _rate(loss: nn.Module, default: float) -> float:
    rate = getattr(loss, "lr", None)
    return default if rate is None else rate


class Schedule:
    """Linear warm-up, then cosine decay to zero or nothing more, by optimizer step (timm's).

    Args:
        optimizer: whose rates are set.
        warmup: steps of warm-up.
        total: steps in all.
        kind: ``cosine`` or ``constant``.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, warmup: int, total: int, kind: str = "cosine"
    ) -> None:
        shared: dict[str, Any] = {
            "warmup_t": min(warmup, total // 2),
            "warmup_lr_init": 0.0,
            "t_in_epochs": False,
        }
        self.inner = (
            CosineLRScheduler(optimizer, t_initial=max(total, 2), **shared)
            if kind == "cosine"
            else StepLRScheduler(optimizer, decay_t=total + 2, **shared)
        )

    def set(self, step: int) -> None:
        """Set the rates for a step, counted from 0; the first one is not zero."""
        self.inner.step_update(step + 1)
