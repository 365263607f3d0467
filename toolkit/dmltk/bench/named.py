"""The toolkit's own suites; their attacks stand in the YAML files of `dmltk/bench/suites`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dmltk.bench.suite import Suite, shipped


def quick() -> Suite:
    """A first look in minutes: stax, mtax and misrank by ten steps, and random noise."""
    return shipped("quick")


def paper() -> Suite:
    """The published evaluation: stax and mtax by PGD-20 at .01 and .1, and their strong twins.

    Targets from the batch and from the whole test set, since the paper leaves it open.

    Source: MDProp (Singh et al.), section 4 and appendix C.
    """
    return shipped("paper")


def ers(eps: Annotated[float, msgspec.Meta(ge=0, le=1)] = 8 / 255) -> Suite:
    """The empirical robustness score: ten ranking attacks, each a term from 0 to 100.

    A collapsed model scores near 48, so the score stands beside clean recall@1, the score without
    an attack and the collapse flag, and is given as published and clipped term by term.

    Args:
        eps: bound in pixel units; 8/255 for pictures of 224 pixels, 77/255 for those of 28.

    Source: Zhou and Patel 2022, Enhancing adversarial robustness for deep metric learning
    """
    suite = shipped("ers")
    attacks = tuple(msgspec.structs.replace(item, eps=(eps,)) for item in suite.attacks)
    return msgspec.structs.replace(suite, attacks=attacks)


def auto() -> Suite:
    """The worst case without a parameter: misrank, flee, nearest stax by auto-PGD, then square.

    Each attack meets only the queries that still stand, and what a bound has broken counts as
    broken at every larger one.

    Source: in the manner of Croce and Hein 2020, Reliable evaluation of adversarial robustness
    """
    return shipped("auto")


def classifier() -> Suite:
    """Classification attacks on nearest-prototype logits over the gallery's classes.

    PGD-200, CW-margin 5 x 40, colour, rotation and translation, flows; AutoAttack, one pixel and
    Square where dmltk-torchattacks is installed.

    Source: Snell et al. 2017, Prototypical networks, for the logits
    """
    return shipped("classifier")
