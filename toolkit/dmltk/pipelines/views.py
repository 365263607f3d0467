"""Contrastive pipelines: several views of each picture, adversarial ones among them.

The parts have the names of their papers' figures: ``t1`` and ``t2`` are augmented views, ``adv``
is an adversary. What is kept of a model is the pooled feature (`embed`); the head ``proj`` is
what is contrasted. A `loss` takes its views as positional arguments; the attack climbs the plain,
symmetric form of it, whatever weights the loss has.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import msgspec

from dmltk.errors import UserError
from dmltk.pipelines.structure import Branch, Head, Pipeline, Ramp, Term
from dmltk.spec import parse, text

Size = Annotated[int, msgspec.Meta(ge=1)]
Many = list[Annotated[int, msgspec.Meta(ge=2)]]

LOSS = "ainfonce"
FIVE = "pgd:steps=5,gain=1.25,select=last"
"""Five steps of 2/255 at a bound of 8/255, from a random start, without a best iterate."""
SEVEN = "pgd:steps=7,gain=1.56,select=last"


def simclr(
    *, loss: str = LOSS, views: str = "views", dim: Size = 128, hidden: Size = 512
) -> Pipeline:
    """Two augmented views of each picture, the others of the batch as negatives.

    Args:
        loss: loss spec over two views.
        views: augment spec of both.
        dim: length of the projection that is contrasted.
        hidden: width of its hidden layer.

    Source: Chen et al. 2020, A simple framework for contrastive learning (SimCLR).
    """
    branches = {"t1": Branch(augment=views), "t2": Branch(augment=views)}
    return Pipeline(branches, (_contrast(loss, "t1", "t2"),), heads=_heads(dim, hidden))


def coreacl(
    *,
    loss: str = LOSS,
    attack: str = FIVE,
    views: str = "views",
    norms: str = "kway",
    dim: Size = 128,
    hidden: Size = 512,
) -> Pipeline:
    """The core of adversarial contrastive learning: two views and one adversary of each picture.

    Args:
        loss: loss spec over three views; `ainfonce:alpha=.2` treats the adversary as an inferior
            positive, `ainfonce:beta=1,tau=.1` weighs hard negatives.
        attack: of the adversary, which starts from the picture and climbs the plain loss of all
            three views; named by its solver.
        views: augment spec of both views.
        norms: norm strategy; adversaries have the route adv.
        dim: length of the projection that is contrasted.
        hidden: width of its hidden layer.

    Source: Yu et al. 2022, Adversarial contrastive learning via asymmetric InfoNCE, section 3.
    """
    climbed = _contrast(_plain(loss), "t1", "t2", "self")
    branches = {
        "t1": Branch(augment=views),
        "t2": Branch(augment=views),
        "adv": Branch(attack=attack, objective=(climbed,), route="adv"),
    }
    return _asymmetric(branches, ("t1", "t2", "adv"), loss, norms, _heads(dim, hidden))


def rocl(
    *,
    loss: str = "ainfonce:form=rocl",
    attack: str = SEVEN,
    views: str = "views",
    norms: str = "shared",
    dim: Size = 128,
    hidden: Size = 2048,
) -> Pipeline:
    """RoCL: two views and an adversary of the first through one set of normalisers.

    A second term, of 1/256, contrasts the adversary with the second view alone.

    Args:
        loss: loss spec over three views.
        attack: of the adversary, which climbs the loss of it and the second view.
        views: augment spec of both views.
        norms: norm strategy.
        dim: length of the projection that is contrasted.
        hidden: width of its hidden layer.

    Source: Kim et al. 2020, Adversarial self-supervised contrastive learning (RoCL), eq. 5 to 7.
    """
    climbed = _contrast(_plain(loss), "self", "t2")
    branches = {
        "t1": Branch(augment=views),
        "t2": Branch(augment=views),
        "adv": Branch(source=("t1",), attack=attack, objective=(climbed,), route="adv"),
    }
    found = _asymmetric(branches, ("t1", "t2", "adv"), loss, norms, _heads(dim, hidden))
    further = msgspec.structs.replace(_contrast(_plain(loss), "adv", "t2"), weight=1 / 256)
    return msgspec.structs.replace(found, terms=(*found.terms, further))


def acl(
    *,
    loss: str = LOSS,
    attack: str = FIVE,
    views: str = "views:scale_min=.1",
    norms: str = "kway:heads=true",
    dim: Size = 128,
    hidden: Size = 512,
) -> Pipeline:
    """ACL, dual stream: two views contrasted, and adversaries of both contrasted.

    Args:
        loss: loss spec over two views; there is no pair of a view and an adversary in it.
        attack: of both views together, which climbs the loss of their adversaries.
        views: augment spec of both views.
        norms: norm strategy; the head has normalisers for each route too.
        dim: length of the projection that is contrasted.
        hidden: width of its hidden layer.

    Source: Jiang et al. 2020, Robust pre-training by adversarial contrastive learning (ACL).
    """
    branches = {"t1": Branch(augment=views), "t2": Branch(augment=views)}
    branches |= _adversaries(("t1", "t2"), loss, attack)
    terms = (_halved(loss, "t1", "t2"), _halved(loss, "adv1", "adv2"))
    return Pipeline(branches, terms, norms, _heads(dim, hidden, bn=True))


def dynacl(
    *,
    steps: Size = 1000,
    every: Size = 50,
    loss: str = LOSS,
    attack: str = FIVE,
    views: str = "views:scale_min=.1",
    norms: str = "kway:heads=true",
    dim: Size = 128,
    hidden: Size = 512,
) -> Pipeline:
    """DynACL: ACL with views that weaken while it trains, and averaged weights for the second ones.

    The weight of the adversaries grows from 1/2 to 5/6 as the strength of the views falls from 1
    to 0. Its averaged weights move by `--ema .99`.

    Args:
        steps: optimizer steps of the whole training.
        every: steps between two moves of strength and weights.
        loss: loss spec over two views.
        attack: of both views together.
        views: augment spec of both views; it must take a strength.
        norms: norm strategy; the head has normalisers for each route too.
        dim: length of the projection that is contrasted.
        hidden: width of its hidden layer.

    Source: Luo et al. 2023, Rethinking the effect of data augmentation in adversarial contrastive
        learning (DynACL).
    """
    falling = Ramp(1.0, 0.0, steps, every)
    branches = {
        "t1": Branch(augment=views, strength=falling),
        "t2": Branch(augment=views, strength=falling, ema=True),
    }
    branches |= _adversaries(("t1", "t2"), loss, attack)
    branches["adv2"] = msgspec.structs.replace(branches["adv2"], ema=True)
    weights = (Ramp(1 / 2, 1 / 6, steps, every), Ramp(1 / 2, 5 / 6, steps, every))
    terms = tuple(
        msgspec.structs.replace(_contrast(loss, *pair), weight=weight)
        for pair, weight in zip((("t1", "t2"), ("adv1", "adv2")), weights, strict=True)
    )
    return Pipeline(branches, terms, norms, _heads(dim, hidden, bn=True))


def advcl(
    *,
    loss: str = LOSS,
    attack: str = FIVE,
    clusters: Many = [2, 10, 50, 100, 500],  # noqa: B006 (never changed; users are shown it)
    weight: Annotated[float, msgspec.Meta(ge=0)] = 0.2,
    views: str = "views",
    radius: Annotated[float, msgspec.Meta(gt=0)] = 8.0,
    norms: str = "kway:heads=false",
    dim: Size = 128,
    hidden: Size = 512,
) -> Pipeline:
    """AdvCL: an adversary, two views and the high frequencies; pseudo-labels on a second adversary.

    The second adversary climbs the cross-entropies of linear layers on the pooled feature, one for
    each number of k-means clusters (see `--features`).

    Args:
        loss: loss spec over four views, the adversary first.
        attack: of both adversaries, which start from a weakly augmented picture.
        clusters: numbers of clusters, each at most half the pictures.
        weight: of the mean of their cross-entropies.
        views: augment spec of both views.
        radius: frequencies below it are left out of the fourth view; 8 is of 32 pixels.
        norms: norm strategy; routes main, adv and adv_ce, the head shared by all.
        dim: length of the projection that is contrasted.
        hidden: width of its hidden layer.

    Source: Fan et al. 2021, When does contrastive learning preserve adversarial robustness from
        pretraining to finetuning? (AdvCL).
    """
    if not clusters:
        raise UserError("advcl needs a number of clusters: write advcl:clusters=[10]")
    climbed = _contrast(_plain(loss), "self", "t1", "t2", "hfc")
    named = [(f"softmax:num_classes={count}", f"clusters{count}") for count in clusters]
    guessed = tuple(Term(loss=spec, of=("self.features",), labels=labels) for spec, labels in named)
    branches = {
        "org": Branch(augment="chain:[shift,flip]"),
        "t1": Branch(augment=views),
        "t2": Branch(augment=views),
        "hfc": Branch(source=("org",), augment=f"highpass:radius={radius:g}"),
        "adv": Branch(source=("org",), attack=attack, objective=(climbed,), route="adv"),
        "adv_ce": Branch(source=("org",), attack=attack, objective=guessed, route="adv_ce"),
    }
    heads = {**_heads(dim, hidden, bn=True), "features": Head(unit=False)}
    found = _asymmetric(branches, ("adv", "t1", "t2", "hfc"), loss, norms, heads)
    labelled = (
        Term(loss=spec, of=("adv_ce.features",), labels=labels, weight=weight / len(clusters))
        for spec, labels in named
    )
    return msgspec.structs.replace(found, terms=(*found.terms, *labelled))


def _heads(dim: int, hidden: int, bn: bool = False) -> dict[str, Head]:
    return {"embed": Head(), "proj": Head(dim=dim, hidden=hidden, bn=bn)}


def _contrast(loss: str, *views: str) -> Term:
    return Term(loss=loss, of=tuple(f"{view}.proj" for view in views), join="args")


def _halved(loss: str, *views: str) -> Term:
    return msgspec.structs.replace(_contrast(loss, *views), weight=0.5)


def _plain(loss: str) -> str:
    """The same without weights: what an attack climbs."""
    spec = parse(loss)
    kept = {key: value for key, value in spec.kwargs.items() if key.startswith("temperature")}
    return str(dataclasses.replace(spec, kwargs=kept))


def _adversaries(views: tuple[str, str], loss: str, attack: str) -> dict[str, Branch]:
    """Adversaries of two views, made together: half the rows of one attack each."""
    temperature = parse(loss).kwargs.get("temperature", "0.5")
    climbed = Term(
        loss=f"ntxent:temperature={text(temperature)}", of=("self.proj",), labels="index"
    )
    return {
        "adv": Branch(source=views, attack=attack, objective=(climbed,), route="adv"),
        "adv1": Branch(source=("adv",), take=(0.0, 0.5), route="adv"),
        "adv2": Branch(source=("adv",), take=(0.5, 1.0), route="adv"),
    }


def _asymmetric(
    branches: dict[str, Branch],
    views: tuple[str, ...],
    loss: str,
    norms: str,
    heads: dict[str, Head],
) -> Pipeline:
    """One term over all views, told which one is the adversary where it weighs it apart.

    An adaptive weight is told the features of the first clean view and of the adversary through
    route main too.
    """
    spec = parse(loss)
    if {"alpha", "cross_weight"} & set(spec.kwargs):
        place = str(views.index("adv"))
        spec = dataclasses.replace(spec, kwargs={"adversaries": [place], **spec.kwargs})
    term = _contrast(str(spec), *views)
    if "alpha_warm" in spec.kwargs:
        origin = (branches["adv"].source or ("clean",))[0]
        further = {"adv_main": Branch(source=("adv",))}
        branches = {**branches, **({"clean": Branch()} if origin == "clean" else {}), **further}
        heads = {**heads, "features": Head(unit=False)}
        compared = (f"{origin}.features|stop", "adv_main.features|stop")
        term = msgspec.structs.replace(term, of=(*term.of, *compared))
    return Pipeline(branches, (term,), norms, heads)
