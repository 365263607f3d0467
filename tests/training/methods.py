"""Eight methods written as YAML, and the little parts that they need."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from dmltk import registry
from torch import Tensor, nn


class Distill(nn.Module):
    """Row-wise KL between the similarity matrices of a student and a teacher (S2SD, eq. 4)."""

    def forward(self, student: Tensor, teacher: Tensor, *, labels: Tensor, index=None) -> Tensor:
        ours = F.log_softmax(student @ student.T, 1)
        theirs = F.softmax(teacher @ teacher.T, 1)
        return F.kl_div(ours, theirs, reduction="batchmean")


class Pairs(nn.Module):
    """Contrastive pair loss of two views: near where labels agree, apart by 1 elsewhere."""

    def forward(self, one: Tensor, two: Tensor, *, labels: Tensor, index=None) -> Tensor:
        gap = (one - two).square().sum(1)
        same = (torch.arange(len(one)) % 2 == 0).float()
        return (
            same * gap + (1 - same) * (1 - gap.clamp_min(1e-12).sqrt()).clamp_min(0) ** 2
        ).mean()


def register() -> None:
    """Make the parts known; again and again does no harm."""
    registry.register("losses", "distill", Distill)
    registry.register("losses", "pairs", Pairs)


METHODS = {
    "st": "norms: shared\nbranches: {main: {}}\nterms: [{loss: multisimilarity, of: [main]}]",
    "at": """
norms: shared
branches: {main: {}, stax: {attack: 'stax:steps=1', route: stax}}
terms: [{loss: multisimilarity, of: [main, stax], join: cat}]
""",
    "advprop-d": """
norms: dual
branches: {main: {}, stax: {attack: 'stax:steps=1', route: stax}}
terms: [{loss: multisimilarity, of: [main, stax]}]
""",
    "mdprop": """
norms: kway
branches:
  main: {}
  stax: {attack: "stax:steps=1", route: stax}
  mtax: {attack: "mtax:targets=3,steps=1", route: mtax}
terms:
  - {loss: multisimilarity, of: [main, stax, mtax], join: each}
""",
    "mdprop-authors": """
norms: kway:init=reset
branches:
  main: {}
  stax:
    attack: "stax:pick=permutation,solver=pgd,steps=1,gain=1,start=5e-4,select=last"
    route: stax
    take: [0, 1/2]
  mtax:
    attack: "mtax:targets=3,pick=permutation,solver=pgd,steps=1,gain=1,start=5e-4,select=last"
    route: mtax
    take: [1/2, 1]
terms:
  - {loss: multisimilarity, of: [main, stax, mtax], join: cat}
""",
    "siamese": """
heads: {embed: {dim: 4, unit: false}}
branches: {left: {take: [0, 1/2]}, right: {take: [1/2, 1]}, main: {}}
terms:
  - {loss: pairs, of: [left, right], join: args}
  - {loss: contrastive, of: [main], weight: 1/2}
""",
    "rocl": """
norms: dual
heads: {proj: {dim: 8, hidden: 12, bn: true}}
branches:
  one: {augment: "crop:scale_min=1/2"}
  two: {augment: flip}
  adv:
    source: [one]
    attack: "pgd:steps=2,select=last"
    route: adv
    objective: [{loss: ntxent, of: [self.proj, 'two.proj|stop'], join: cat, labels: index}]
terms:
  - {loss: "ntxent:temperature=.5", of: [one.proj, two.proj, adv.proj], join: cat, labels: index}
""",
    "s2sd": """
heads:
  wide: {dim: 16, hidden: 16, pool: avgmax}
branches: {main: {}}
terms:
  - {loss: multisimilarity, of: [main, main.wide], weight: 1/2}
  - {loss: distill, of: [main, 'main.wide|stop'], join: args, weight: {from: 0, to: 50, steps: 4}}
  - {loss: distill, of: [main, 'main.wide|stop'], join: args, weight: 5, from_step: 1}
""",
}
