"""Attacks on embeddings: goals, threats, solvers, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmltk import registry
from dmltk.attacks.apgd import Apgd
from dmltk.attacks.attack import Attack, AttackResult, Goal, Solver, check_images
from dmltk.attacks.blackbox import Nes, Noise, Square
from dmltk.attacks.colour import Colour
from dmltk.attacks.goals import Flee, Misrank, Mtax, Stax, Targeted, Tma
from dmltk.attacks.guard import guard
from dmltk.attacks.probe import Objective, Probe
from dmltk.attacks.prototype import Prototype
from dmltk.attacks.solvers import Descent, bim, fgsm, mim, pgd
from dmltk.attacks.spatial import Rotation, Stadv
from dmltk.attacks.terms import Terms
from dmltk.attacks.threat import Threat, normalized
from dmltk.spec import Spec

__all__ = [
    "Apgd",
    "Attack",
    "AttackResult",
    "Colour",
    "Descent",
    "Flee",
    "Goal",
    "Misrank",
    "Mtax",
    "Nes",
    "Noise",
    "Objective",
    "Probe",
    "Prototype",
    "Rotation",
    "Solver",
    "Square",
    "Stadv",
    "Stax",
    "Targeted",
    "Terms",
    "Threat",
    "Tma",
    "bim",
    "build",
    "check_images",
    "fgsm",
    "guard",
    "mim",
    "normalized",
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
