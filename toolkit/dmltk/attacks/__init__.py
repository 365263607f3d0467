"""Attacks on embeddings: goals, threats, solvers, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmltk import registry
from dmltk.attacks.attack import Attack, AttackResult, Goal, Solver, check_images
from dmltk.attacks.goals import Flee, Mtax, Stax, Targeted
from dmltk.attacks.guard import guard
from dmltk.attacks.probe import Objective, Probe
from dmltk.attacks.solvers import Descent, bim, fgsm, mim, pgd
from dmltk.attacks.threat import Threat
from dmltk.spec import Spec

__all__ = [
    "Attack",
    "AttackResult",
    "Descent",
    "Flee",
    "Goal",
    "Mtax",
    "Objective",
    "Probe",
    "Solver",
    "Stax",
    "Targeted",
    "Threat",
    "bim",
    "build",
    "check_images",
    "fgsm",
    "guard",
    "mim",
    "pgd",
]


def build(spec: str | Spec, *, context: Mapping[str, Any] | None = None, **args: Any) -> Attack:
    """An attack from its spec, such as `mtax:targets=5,eps=8/255`.

    Args:
        spec: name and arguments of a registered attack.
        context: what the toolkit offers (eps …), passed where asked for and not given.
        args: further arguments of the attack.
    """
    attack: Attack = registry.build("attacks", spec, context=context, **args)
    return attack
