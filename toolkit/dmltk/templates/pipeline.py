"""A pipeline for dmltk."""

from typing import Annotated

from msgspec import Meta

from dmltk.pipelines import Branch, Pipeline, Term


def example(
    *,
    loss: str = "multisimilarity",
    attack: str = "stax:steps=1",
    weight: Annotated[float, Meta(ge=0)] = 0.5,
) -> Pipeline:
    """Training on clean and adversarial pictures, each with its normalisers, weighed.

    Args:
        loss: of both terms; a loss spec.
        attack: makes the adversarial pictures; an attack spec.
        weight: of the adversarial term.
    """
    return Pipeline(
        norms="kway",
        branches={"main": Branch(), "adversarial": Branch(attack=attack, route="adversarial")},
        terms=(Term(loss, ("main",)), Term(loss, ("adversarial",), weight=weight)),
    )
