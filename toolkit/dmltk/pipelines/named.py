"""The named methods: presets of :func:`dmltk.pipelines.compose.compose`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dmltk.errors import UserError
from dmltk.pipelines.compose import LOSS, compose
from dmltk.pipelines.structure import Branch, Pipeline, Term

Targets = Annotated[int, msgspec.Meta(ge=1)]


def st(*, norms: str = "shared", loss: str = LOSS) -> Pipeline:
    """Standard training: clean pictures, one term.

    Args:
        norms: norm strategy; with one route there is one set whatever it is.
        loss: loss spec.

    Source: Roth et al., ICML 2020.
    """
    return compose(norms=norms, loss=loss)


def at(
    *, attack: str = "stax:steps=1", join: Literal["each", "cat"] = "each", loss: str = LOSS
) -> Pipeline:
    """Adversarial training: clean and attacked pictures through the same normalisers.

    Args:
        attack: attack spec; ``mtax`` for several targets.
        join: one loss a branch, summed, or one over all embeddings (the other reading).
        loss: loss spec.

    Source: MDProp (Singh et al.), appendix C.2, eq. 17.
    """
    return compose(attacks=[attack], norms="shared", loss=loss, join=join)


def advprop_d(*, attack: str = "stax:steps=1", loss: str = LOSS) -> Pipeline:
    """AdvProp for metric learning: attacked pictures have normalisers of their own.

    Args:
        attack: attack spec.
        loss: loss spec.

    Source: Xie et al., CVPR 2020; MDProp (Singh et al.), section 3.
    """
    return compose(attacks=[attack], norms="dual", loss=loss)


def mdprop(
    *,
    stax: bool = True,
    mtax: list[Targets] = [5],  # noqa: B006 (never changed; the default is shown to users)
    steps: Annotated[int, msgspec.Meta(ge=1)] = 1,
    start: Literal["0", "paper"] = "0",
    norms: str = "kway",
    loss: str = LOSS,
) -> Pipeline:
    """MDProp: clean, single-targeted and multi-targeted pictures, normalisers for each.

    MDProp′ is ``mdprop:stax=false,mtax=[3]``, MDProp″ the default, MDProp‴ ``mdprop:mtax=[3,5]``.

    Args:
        stax: whether there is a branch of single-targeted pictures.
        mtax: targets T of each multi-targeted branch.
        steps: steps of every attack.
        start: from the picture (0), or uniformly within 5e-4 of it (paper).
        norms: norm strategy.
        loss: loss spec.

    Source: MDProp (Singh et al.), algorithm 1 and eq. 3.
    """
    if not stax and not mtax:
        raise UserError("pipeline 'mdprop' without stax and mtax has no attack: write st instead")
    from_noise = f"solver=pgd,steps={steps},gain=1,start=5e-4,select=last"
    search = from_noise if start == "paper" else f"steps={steps}"
    attacks = [f"stax:{search}"] if stax else []
    attacks += [f"mtax:targets={targets},{search}" for targets in mtax]
    return compose(attacks=attacks, norms=norms, loss=loss)


def mdprop_authors(*, targets: Targets = 5, loss: str = LOSS) -> Pipeline:
    """MDProp as its authors' code runs it: half a batch each, one loss over all embeddings.

    Targets are permutations of the half batch, whatever the labels; attacks start uniformly
    within 5e-4 of the picture; the other sets' statistics begin at 0 and 1. The code takes a
    batch of 64 and 125 epochs (`--batch 64 --epochs 125`).

    Args:
        targets: targets T of the multi-targeted half.
        loss: loss spec.

    Source: MDProp (Singh et al.), the published code.
    """
    search = "solver=pgd,steps=1,gain=1,start=5e-4,select=last"
    stax = f"stax:pick=permutation,{search}"
    mtax = f"mtax:targets={targets},pick=permutation,{search}"
    branches = {
        "main": Branch(),
        "stax": Branch(attack=stax, route="stax", take=(0.0, 0.5)),
        "mtax": Branch(attack=mtax, route="mtax", take=(0.5, 1.0)),
    }
    terms = (Term(loss=loss, of=tuple(branches), join="cat"),)
    return Pipeline(branches, terms, "kway:init=reset")
