"""The attack `torchattacks`: a class by name, with that class's arguments and a goal."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Annotated, Any, Literal

from dmltk import registry
from dmltk.attacks import Attack, Goal, Threat
from dmltk.errors import unknown
from dmltk.spec import Spec, as_spec
from msgspec import Meta

from dmltk_torchattacks.bank import Centres, Nothing
from dmltk_torchattacks.library import arguments_of, find, radius_of, takes
from dmltk_torchattacks.solver import Theirs
from dmltk_torchattacks.table import Row

Radius = Annotated[float, Meta(ge=0)]
Temperature = Annotated[float, Meta(gt=0)]
LIMITS = ("norm", "quantize")


class Torchattacks:
    """A factory whose arguments are those of the class that is named, and of its goal."""

    def signature_for(self, given: Mapping[str, Any]) -> inspect.Signature:
        """The arguments, for the class and the goal that are given.

        Raises:
            UserError: for a class that is unknown or refused.
        """
        name = _keyword("name", str, Parameter.empty)
        if not isinstance(given.get("name"), str):
            return inspect.Signature([name])
        cls, row = find(given["name"])
        own = _own(cls, row)
        goal = {"goal": own["goal"]} if "goal" in own else {}
        return inspect.Signature([name, *{**goal, **_goals(given, own), **own}.values()])

    def __call__(self, **values: Any) -> Attack:
        """The attack; its arguments are the parameters of `signature_for(values)`."""
        allowed = self.signature_for(values).parameters
        for key in values:
            if key not in allowed:
                raise unknown("argument", key, allowed, "torchattacks")
        cls, row = find(values["name"])
        arguments = {key: values[key] for key in arguments_of(cls, row) if key in values}
        limits: dict[str, Any] = {key: values[key] for key in LIMITS if key in values}
        if (radius := radius_of(cls)) is not None:
            limits["eps"] = values.get("eps", radius.default)
        threat = Threat(**{"norm": row.norm, **limits})
        solver = Theirs(cls.__name__, arguments)
        return Attack(_goal(cls, row, values), solver, threat, mode=values.get("mode", "eval"))


torchattacks = Torchattacks()
"""A class of torchattacks: down a goal's loss, or against class centres.

Written as `torchattacks:PGD,steps=40`; `dmltk show attack torchattacks:name=PGD` shows a class.

FGSM, BIM, RFGSM, PGD, EOTPGD, FFGSM, MIFGSM, NIFGSM, DIFGSM, TIFGSM, PIFGSM, PIFGSMPP, PGDL2, UPGD,
SINIFGSM, VMIFGSM, VNIFGSM, PGDRS, PGDRSL2 and SPSA climb down the goal's loss itself. APGD, APGDT,
AutoAttack, FAB, Square, Jitter, TPGD, CW, EADL1, EADEN, DeepFool, SparseFool, JSMA, OnePixel and
Pixle attack the classifier by nearest class centre. GN adds noise.

Args:
    name: the class; the other arguments are its own and its goal's.
    goal: what is wanted of the embedding, stax unless given. For a class that attacks class
        centres it names the class to reach, the one at whose centre the goal's loss is lowest;
        none leaves the own class.
    targets_from: `batch` aims at the batch itself, `reference` at a whole data set; for class
        centres, whose classes.
    temperature: divides the squared distances to the class centres.
    eps: radius of the ball in pixel units; the class's own default where none is given.
    norm: how a change is measured.
    quantize: 8 rounds what the attack found to k/255 inside the ball, as saving in 8 bit would.
    mode: `eval`, or `train` to leave a training model on the statistics of the batch.
    alpha: length of a step in pixel units.
    steps: how many.
    decay: share of the momentum that is kept.
    random_start: whether it starts at a random picture of the ball.

Source: Kim 2020, Torchattacks: a PyTorch repository for adversarial attacks, arXiv 2010.01950
"""


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _own(cls: type[Any], row: Row) -> dict[str, Parameter]:
    """What an attack takes beside its goal's arguments: the class's, then the toolkit's."""
    bank, radius = row.way == "bank", radius_of(cls)
    parameters = list(arguments_of(cls, row).values())
    if row.way in ("exact", "callable") or row.aims != "never":
        parameters.append(_keyword("goal", Spec | str, None if bank else "stax"))
    if bank:
        parameters.append(_keyword("targets_from", Literal["batch", "reference"], "batch"))
        parameters.append(_keyword("temperature", Temperature, 0.1))
    if radius is not None:
        parameters.append(_keyword("eps", Radius, radius.default))
    if takes(cls, "norm"):
        parameters.append(_keyword("norm", Literal["linf", "l2"], row.norm))
    quantize = registry.signature(Threat).parameters["quantize"].annotation
    parameters.append(_keyword("quantize", quantize, None))
    mode = registry.signature(Attack).parameters["mode"].annotation
    parameters.append(_keyword("mode", mode, "eval"))
    return {parameter.name: parameter for parameter in parameters}


def _goals(given: Mapping[str, Any], own: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """What a goal takes beside the arguments nested in it; a name of both is the attack's own."""
    if "goal" not in own:
        return {}
    value = given.get("goal", own["goal"].default)
    if not isinstance(value, str | Spec):
        return {}
    spec = as_spec(value)
    found = registry.signature(registry.factory("goals", spec.name), spec.kwargs).parameters
    nested = {*spec.kwargs, *list(found)[: len(spec.args)]}
    return {
        name: parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in found.items()
        if name not in nested and name not in own
    }


def _goal(cls: type[Any], row: Row, values: Mapping[str, Any]) -> Goal:
    """The goal, built; for a class that attacks class centres, around them."""
    own = _own(cls, row)
    goal: Any = values.get("goal", own["goal"].default) if "goal" in own else None
    if isinstance(goal, str | Spec):
        outer = {name: values[name] for name in _goals(values, own) if name in values}
        context = {name: values[name] for name in ("targets_from",) if name in values}
        goal = registry.build("goals", goal, context=context, **outer)
    if row.way != "bank":
        return goal or Nothing()
    targets_from = values.get("targets_from", own["targets_from"].default)
    temperature = values.get("temperature", own["temperature"].default)
    return Centres(row, goal, targets_from, temperature, _fewest(row, values))


def _fewest(row: Row, values: Mapping[str, Any]) -> int:
    """How many class centres are needed: the loss `dlr` looks at the third largest column."""
    return max(row.classes, 3 if values.get("loss") == "dlr" else 2)
