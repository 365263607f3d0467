"""What a pipeline names, built: losses, attacks, augments, and what an objective climbs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from dmltk import registry, seeds
from dmltk.errors import UserError
from dmltk.pipelines.structure import Branch, Pipeline, Term
from dmltk.spec import parse


@dataclass
class Parts:
    """A pipeline's losses, attacks and augments, built.

    Args:
        losses: one module a term, in the pipeline's order.
        attacks: by branch.
        augments: by branch.
        objectives: the losses of each attacked branch's objective: they share the parameters
            of the terms', have a state of their own, in eval mode: an attack fills no queue.
    """

    losses: nn.ModuleList
    attacks: dict[str, Any] = field(default_factory=dict)
    augments: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    objectives: nn.ModuleDict = field(default_factory=nn.ModuleDict)


def build_parts(pipeline: Pipeline, context: Mapping[str, Any]) -> Parts:
    """Build what a pipeline names.

    Args:
        pipeline: checked.
        context: offered to the factories: num_classes, embedding_size by head, eps, device.

    Raises:
        UserError: for the first part that cannot be.
    """
    sizes: Mapping[str, int] = context.get("sizes", {})

    def loss(term: Term, number: int) -> nn.Module:
        offered = {
            **context,
            "embedding_size": sizes.get(term.references[0].head, context.get("embedding_size")),
            "seed": seeds.derive(context.get("seed", 0), number),
        }
        return registry.build("losses", term.loss, context=offered)

    parts = Parts(nn.ModuleList(loss(term, i) for i, term in enumerate(pipeline.terms)))
    trained = {term.loss: made for term, made in zip(pipeline.terms, parts.losses, strict=True)}
    for name, branch in pipeline.branches.items():
        if branch.augment:
            parts.augments[name] = registry.build("augments", branch.augment, context=context)
            if branch.strength != 1.0 and not takes_strength(parts.augments[name]):
                raise UserError(
                    f"branches.{name}.strength: augment {branch.augment} takes none; views does"
                )
        if branch.attack:
            parts.attacks[name] = registry.build("attacks", branch.attack, context=context)
        if branch.objective:
            _check_climber(name, branch, parts.attacks[name])
            climbed = [
                _twin(trained[term.loss]) if term.loss in trained else _untrained(term, loss, name)
                for term in branch.objective
            ]
            parts.objectives[name] = nn.ModuleList(climbed).eval()
    return parts


def takes_strength(augment: Any) -> bool:
    """Whether an augment is called with a strength from 0 to 1 besides."""
    return bool(getattr(augment, "takes_strength", False))


def _twin(loss: nn.Module) -> nn.Module:
    """The same loss with the same parameters and buffers of its own: climbing it trains nothing."""
    return copy.deepcopy(loss, {id(p): p for p in loss.parameters()})


def _untrained(term: Term, loss: Callable[[Term, int], nn.Module], branch: str) -> nn.Module:
    made = loss(term, 0)
    if any(True for _ in made.parameters()):
        raise UserError(
            f"branches.{branch}.objective: {term.loss} has parameters that no term trains:"
            " name the very same loss in a term"
        )
    return made


def _check_climber(name: str, branch: Branch, attack: Any) -> None:
    """Refuse what cannot climb an objective: one loss for the whole batch."""
    if "goal" in parse(branch.attack).kwargs:
        raise UserError(f"branches.{name} has a goal and an objective: leave one of them out")
    if getattr(attack.solver, "select", "last") == "best":
        raise UserError(
            f"branches.{name}: an objective is one loss for the whole batch, so no picture has a"
            " best iterate of its own: write select=last in the attack"
        )
    if attack.restarts > 1:
        raise UserError(
            f"branches.{name}: an objective is one loss for the whole batch, so no picture has a"
            " best start of its own: leave restarts out"
        )
