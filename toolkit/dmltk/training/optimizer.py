"""The optimizer's parameter groups and its schedule."""

from __future__ import annotations

from typing import Any

import torch
from timm.scheduler.cosine_lr import CosineLRScheduler
from torch import nn

from dmltk.training.config import Config


def make_optimizer(config: Config, model: Any, losses: nn.ModuleList) -> torch.optim.Adam:
    """Adam over backbone, heads and the losses' own parameters (no decay, their own rate).

    Args:
        config: of the run.
        model: a routed embedder.
        losses: one a term.
    """
    heads = list(model.embedder.heads.parameters())
    known = {id(p) for p in heads}
    body = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    groups: list[dict[str, Any]] = [
        {"params": body, "lr": config.lr, "weight_decay": config.weight_decay},
        {
            "params": [p for p in heads if p.requires_grad],
            "lr": config.head_lr or config.lr,
            "weight_decay": config.weight_decay,
        },
    ]
    seen: set[int] = set()
    for loss in losses:
        own = [p for p in loss.parameters() if p.requires_grad and id(p) not in seen]
        seen |= {id(p) for p in own}
        rate = getattr(loss, "lr", None)
        groups.append(
            {"params": own, "lr": config.lr if rate is None else rate, "weight_decay": 0.0}
        )
    return torch.optim.Adam([group for group in groups if group["params"]])


class Schedule:
    """Linear warm-up, then cosine decay to zero, by optimizer step (timm's scheduler).

    Args:
        optimizer: whose rates are set.
        warmup: steps of warm-up.
        total: steps in all.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, warmup: int, total: int) -> None:
        self.inner = CosineLRScheduler(
            optimizer,
            t_initial=max(total, 1),
            warmup_t=min(warmup, total // 2),
            warmup_lr_init=0.0,
            t_in_epochs=False,
        )

    def set(self, step: int) -> None:
        """Set the rates for a step, counted from 0; the first one is not zero."""
        self.inner.step_update(step + 1)
