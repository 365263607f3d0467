"""Checks that tell robustness from an attack that does not work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from dmltk import registry, seeds
from dmltk.batch import Batch

__all__ = ["MASKING", "Check", "of_evaluations", "of_model"]

MASKING = "robustness may be gradient masking"
SLACK = 0.03
"""Share of the queries by which a stronger attack may be weaker: draws differ."""
CHANCE = 2
"""So many queries more may go the other way."""


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: what must hold.
        passed: whether it does.
        seen: the figures it was judged by.
    """

    name: str
    passed: bool
    seen: str

    def plain(self) -> dict[str, Any]:
        """As it stands in ``results.json``."""
        return {"name": self.name, "passed": self.passed, "seen": self.seen}


def of_evaluations(evaluations: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Checks among the bench's own figures: larger bounds, noise and transfer.

    Args:
        evaluations: entries of ``results.json``; only full ones of protocol query are compared.
    """
    full = [e for e in evaluations if e["protocol"] == "query" and e["attack"]]
    full = [e for e in full if not e["standing"] and e["attack_stats"]["success"] is not None]
    found = []
    for attack in dict.fromkeys((e["suite"], e["name"]) for e in full):
        own = [e for e in full if (e["suite"], e["name"]) == attack]
        curve = sorted((e["eps"], e["attack_stats"]["success"]) for e in own)
        if len(curve) > 1:
            slack = _slack(own[0])
            falls = any(b[1] < a[1] - slack for a, b in pairwise(curve))
            seen = ", ".join(f"{value:.3f} at {eps * 255:.3g}/255" for eps, value in curve)
            found.append(Check(f"{attack[1]}: a larger bound is never weaker", not falls, seen))
    white = _strongest(full, "gradients")
    slack = max(map(_slack, full), default=SLACK)
    for access, word in (("none", "noise"), ("surrogate", "transfer")):
        for place, weak in _strongest(full, access).items():
            if place in white:
                seen = f"{weak:.3f} against {white[place]:.3f} at {place[1] * 255:.3g}/255"
                passed = weak <= white[place] + slack
                found.append(Check(f"{word} is weaker than attacks by gradients", passed, seen))
    return found


def _slack(entry: Mapping[str, Any]) -> float:
    return SLACK + CHANCE / max(entry["attack_stats"]["attacked"], 1)


def _strongest(entries: Sequence[Mapping[str, Any]], access: str) -> dict[tuple[str, float], float]:
    """The largest success of attacks with some access, by norm and bound."""
    best: dict[tuple[str, float], float] = {}
    for entry in entries:
        if entry["access"] == access:
            place = entry["norm"], entry["eps"]
            best[place] = max(entry["attack_stats"]["success"], best.get(place, 0.0))
    return dict(sorted(best.items()))


@dataclass(frozen=True)
class _Trial:
    embed: nn.Module
    batch: Batch
    seed: int
    rank: Callable[[Tensor], Tensor]

    def lost(self, spec: str, eps: float) -> float:
        """The share of these queries, all found clean, that an attack makes miss."""
        attack = registry.build("attacks", spec, context={"eps": eps})
        draws = seeds.generator(self.seed, "sanity", spec, eps)
        result = attack(self.embed, self.batch, generator=draws)
        with torch.no_grad():
            z = self.embed(result.images)
        return (self.rank(z.float().cpu()) != 1).double().mean().item()


def of_model(
    embed: nn.Module, batch: Batch, rank: Callable[[Tensor], Tensor], eps: float, seed: int
) -> list[Check]:
    """Checks by small attacks of their own on a few queries that are found clean.

    Args:
        embed: the model.
        batch: those queries, with index and reference.
        rank: from their embeddings to the rank of each one's first hit.
        eps: the bound at which attacks are compared.
        seed: of the draws.
    """
    trial = _Trial(embed, batch, seed, rank)
    with torch.no_grad():
        before = embed(batch.images)
        attack = registry.build("attacks", "misrank", context={"eps": 0.0})
        none = attack(embed, batch, generator=seeds.generator(seed, "sanity"))
        same = torch.equal(embed(none.images), before)
    found = [Check("bound 0 is the clean figure, bit for bit", same, "embeddings compared")]
    found += _gradients(embed, batch)
    if not found[-1].passed:
        return found
    slack = SLACK + CHANCE / len(batch.images)
    steps = {n: trial.lost(f"misrank:solver=bim,steps={n}", eps) for n in (1, 5, 20)}
    seen = ", ".join(f"{value:.3f} by {n}" for n, value in steps.items())
    ordered = steps[5] >= steps[1] - slack and steps[20] >= steps[5] - slack
    found.append(Check("more steps are never weaker", ordered, seen))
    plain = trial.lost("misrank:solver=pgd,steps=20,start=0", eps)
    random = trial.lost("misrank:solver=pgd,steps=20", eps)
    seen = f"{random:.3f} from a random start, {plain:.3f} from the picture"
    found.append(Check("a random start is no weaker than none", random >= plain - slack, seen))
    whole = trial.lost("misrank:solver=pgd,steps=40", 1.0)
    seen = f"{1 - whole:.3f} of the queries stand"
    found.append(Check("bound 1 leaves no query standing", whole == 1.0, seen))
    return found


def _gradients(embed: nn.Module, batch: Batch) -> list[Check]:
    """Shares of pictures whose gradient is exactly zero, or not finite.

    The gradient is that of the embedding along a fixed direction.
    """
    images = batch.images.detach().clone().requires_grad_()
    try:
        z = embed(images).float()
        along = torch.linspace(-1, 1, z.shape[1], device=z.device)
        (grad,) = torch.autograd.grad((z @ along).sum(), images)
    except RuntimeError as error:
        return [Check("the model gives gradients", False, str(error).splitlines()[0])]
    flat = grad.flatten(1)
    zero = (flat == 0).all(1).double().mean().item()
    broken = (~torch.isfinite(flat)).any(1).double().mean().item()
    return [
        Check("few gradients are exactly zero", zero <= SLACK, f"{zero:.3f} of the queries"),
        Check("every gradient is finite", broken == 0, f"{broken:.3f} of the queries have others"),
    ]
