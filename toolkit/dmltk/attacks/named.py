"""Attacks by name: a goal and a solver put together, with the parameters of both."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from inspect import Parameter
from typing import Any

from dmltk import convert, registry
from dmltk.attacks.attack import Attack
from dmltk.attacks.threat import Threat
from dmltk.errors import PluginError, UserError, unknown
from dmltk.spec import Spec, Value, as_spec

PARTS = ("goal", "solver")


class Composed:
    """An attack named by its goal or by its solver; the other part is an argument.

    Its parameters are those of both parts, then the threat's, `restarts` and `mode`. One that
    both parts have is given nested: `solver=pgd(steps=20)`. A solver that declares
    `needs_norm` has the threat's norm as it needs it.

    Args:
        goal: spec of the goal that gives the name.
        solver: spec of the solver that gives the name; beside a goal, that goal's default solver.
    """

    def __init__(self, *, goal: str = "", solver: str = "") -> None:
        self._named, self._open = PARTS if goal else PARTS[::-1]
        self._defaults = {
            "goal": as_spec(goal or "stax"),
            "solver": as_spec(solver or "bim:steps=1"),
        }
        self.__doc__ = self._document()

    def signature_for(self, given: Mapping[str, Any]) -> inspect.Signature:
        """The merged parameters, for the parts that are given.

        Raises:
            UserError: where an argument is given both nested and outside.
            PluginError: where an argument is given that both parts have.
        """
        first = self._parameters(self._named, given)
        second = self._parameters(self._open, given)
        for name in sorted(given.keys() & self._nested(given) - first.keys() - _own().keys()):
            raise UserError(f"'{name}' is given twice: nested in {self._open}=… and beside it")
        shared = first.keys() & second.keys()
        for name in sorted(shared & given.keys()):
            raise PluginError(
                f"both the goal and the solver take '{name}': write it nested, "
                f"as {self._open}=NAME({name}=…)"
            )
        part = Parameter(
            self._open,
            Parameter.KEYWORD_ONLY,
            default=self._defaults[self._open],
            annotation=Spec | str,
        )
        merged = {**first, self._open: part, **second}
        alone = [merged[name] for name in merged if name not in shared]
        return inspect.Signature([*alone, *self._own(given).values()])

    def __call__(self, **values: Any) -> Attack:
        """The attack; its arguments are the parameters of `signature_for(values)`."""
        merged = self.signature_for(values).parameters
        for name in values:
            if name not in merged:
                raise unknown("argument", name, merged, "an attack")
        parts = {part: self._build(part, values) for part in PARTS}
        own = {name: values[name] for name in _own() if name in values}
        limits = {name: own.pop(name) for name in _threat() if name in own}
        limits.setdefault("norm", merged["norm"].default)
        return Attack(**parts, threat=Threat(**limits), **own)

    def _own(self, given: Mapping[str, Any]) -> dict[str, Parameter]:
        """The parameters of the attack itself, the norm's default as the solver needs it."""
        solver = self._value("solver", given)
        if isinstance(solver, str | Spec):
            solver = registry.factory("solver", as_spec(solver).name)
        norm = _own()["norm"]
        needed = getattr(solver, "needs_norm", norm.default)
        return {**_own(), "norm": norm.replace(default=needed)}

    def _value(self, part: str, given: Mapping[str, Any]) -> Any:
        """A part as it was given: a spec, its text, or a built object."""
        default = self._defaults[part]
        return given.get(part, default) if part == self._open else default

    def _nested(self, given: Mapping[str, Any]) -> set[str]:
        """The names of the arguments that a given part carries itself."""
        value = given.get(self._open)
        return set(_part(self._open, value)[0].kwargs) if isinstance(value, str | Spec) else set()

    def _parameters(self, part: str, given: Mapping[str, Any]) -> dict[str, Parameter]:
        """What a part takes beside the arguments nested in it, with its defaults here."""
        value = self._value(part, given)
        if not isinstance(value, str | Spec):
            return {}
        spec, parameters = _part(part, value)
        taken = {*_own(), *PARTS} | (self._nested(given) if part == self._open else set())
        free = {}
        for name, parameter in parameters.items():
            if name in taken:
                continue
            default = parameter.default
            if name in spec.kwargs:
                annotation = convert.annotation_of(parameter)
                default = convert.convert(spec.kwargs[name], annotation, name, registry.build)
            free[name] = parameter.replace(kind=Parameter.KEYWORD_ONLY, default=default)
        return free

    def _build(self, part: str, values: Mapping[str, Any]) -> Any:
        value = self._value(part, values)
        if not isinstance(value, str | Spec):
            return value
        spec, _ = _part(part, value)
        outer = {name: values[name] for name in self._parameters(part, values) if name in values}
        nested = {name: inner for name, inner in spec.kwargs.items() if name not in outer}
        return registry.build(registry.plural(part), Spec(spec.name, (), nested), **outer)

    def _document(self) -> str:
        parts = (self._named, self._open)
        makers = [registry.factory(part, self._defaults[part].name) for part in parts]
        documents = [inspect.getdoc(source) or "" for source in (*makers, Threat, Attack)]
        arguments = "".join(map(_arguments, documents))
        return f"{documents[0].partition(chr(10))[0]}\n\nArgs:\n{arguments}"


def _threat() -> Mapping[str, Parameter]:
    return registry.signature(Threat).parameters


@cache
def _own() -> dict[str, Parameter]:
    """The parameters of an attack that are neither its goal's nor its solver's."""
    found = {**_threat(), **registry.signature(Attack).parameters}
    return {
        name: parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in found.items()
        if name not in (*PARTS, "threat")
    }


def _part(part: str, value: str | Spec) -> tuple[Spec, Mapping[str, Parameter]]:
    """A part's spec with every argument by name, and all its parameters."""
    spec = as_spec(value)
    maker = registry.factory(part, spec.name)
    parameters = registry.signature(maker, spec.kwargs).parameters
    nested: dict[str, Value] = dict(spec.kwargs)
    if spec.args:
        first = next(iter(parameters), None)
        if first is None or first in nested:
            raise UserError(f"{part} '{spec}': '{spec.args[0]}' stands for no free argument")
        nested = {first: spec.args[0], **nested}
    return Spec(spec.name, (), nested), parameters


def _arguments(document: str) -> str:
    """The lines of a docstring's `Args:`."""
    section = re.search(r"^Args:\n((?:    .*\n?)+)", document, re.M)
    return section[1].rstrip() + "\n" if section else ""


stax = Composed(goal="stax")
"""Single-target attack: bring each picture near one item of another class.

loss = ||f(x + d) - f(x_t)||^2 with x_t drawn once among items of other labels; by default one
sign step of length eps from the picture itself, aimed within the batch.

Source: Singh et al., MDProp, eq. 3 with T=1 and eq. 16
"""

mtax = Composed(goal="mtax")
"""Multi-target attack: bring each picture near several items of other classes at once.

loss = (1/T) sum over t of ||f(x + d) - f(x_t)||^2 with the x_t drawn once from T distinct other
classes; by default one sign step of length eps from the picture itself, aimed within the batch.

Source: Singh et al., MDProp, eq. 3
"""

tma = Composed(goal="tma")
"""Targeted mismatch: turn each picture's embedding towards one item of another class.

loss = 1 - cos(f(x + d), f(x_t)) with x_t drawn once among items of other labels; by default one
sign step of length eps from the picture itself, aimed within the batch.

Source: Tolias, Radenovic and Chum 2019, Targeted mismatch adversarial attack
"""

flee = Composed(goal="flee", solver="pgd")
"""Embedding shift: move each picture's embedding away from where it was.

loss = -||f(x + d) - f(x)||^2, which has no gradient at the picture itself; so by default pgd,
from a random start.

Source: Zhou et al. 2020, Adversarial ranking attack and defense
"""

misrank = Composed(goal="misrank", solver="pgd")
"""Lost retrieval: bring an item of another class nearer than any item of a picture's own.

loss = distance to the nearest item of another class - distance to the nearest of its own, over
the reference and without the picture's own row; below zero R@1 is lost. By default pgd.

Source: dmltk; the margin loss of Carlini and Wagner 2017, carried over to retrieval
"""

fgsm = Composed(solver="fgsm")
"""Fast gradient sign method: one step of length eps down the goal's loss.

x' = project(x - eps * sign(gradient)); the goal is stax unless given.

Source: Goodfellow, Shlens and Szegedy 2015, Explaining and harnessing adversarial examples
"""

bim = Composed(solver="bim")
"""Basic iterative method: sign steps of length eps / steps down the goal's loss.

x' = project(x' - alpha * sign(gradient)) from x' = x, the last iterate; the goal is stax unless
given.

Source: Kurakin, Goodfellow and Bengio 2017, Adversarial examples in the physical world
"""

pgd = Composed(solver="pgd")
"""Projected gradient descent: sign steps from a random start, the best iterate of each picture.

x' = project(x' - alpha * sign(gradient)) from x' = x + U(-start, start); the goal is stax unless
given, `goal=flee` moves the embedding away from where it was.

Source: Madry et al. 2018, Towards deep learning models resistant to adversarial attacks
"""

mim = Composed(solver="mim")
"""Momentum iterative method: signs of a running sum of gradients of the goal's loss.

g = decay * g + gradient / mean(abs(gradient)); x' = project(x' - alpha * sign(g)) from x' = x;
the goal is stax unless given.

Source: Dong et al. 2018, Boosting adversarial attacks with momentum
"""

apgd = Composed(solver="apgd")
"""Auto-PGD: momentum steps that halve where the loss stalls, each picture's best iterate.

x' = P(x' + 0.75 (P(x' - a * sign(gradient)) - x') + 0.25 (x' - the one before)), a from 2 * eps;
the goal is stax unless given.

Source: Croce and Hein 2020, Reliable evaluation of adversarial robustness, algorithm 1
"""

nes = Composed(solver="nes")
"""Natural evolution strategies: sign steps along a gradient estimated from losses alone.

g = mean of (loss(x' + sigma u) - loss(x' - sigma u)) / (2 sigma) u over Gaussian u; x' =
project(x' - alpha * sign(g)), for a budget of queries; the goal is stax unless given.

Source: Ilyas et al. 2018, Black-box adversarial attacks with limited queries and information
"""

square = Composed(solver="square")
"""Square attack: random squares of x + eps or x - eps, kept where they lower the loss.

The squares shrink while the budget of queries is spent; no gradient is asked for; the goal is
stax unless given.

Source: Andriushchenko et al. 2020, Square attack, algorithms 1 and 2
"""

noise = Composed(solver="noise")
"""Random pictures in the ball: the baseline that any attack must beat.

Each picture's best of `tries` draws by the loss of the goal, stax unless given; a single draw
asks for no loss.

Source: dmltk; the random start of Madry et al. 2018 without the steps after it
"""

prototype = Composed(goal="prototype", solver="pgd")
"""Lost class: bring each picture nearer to another class's centre than to its own's.

loss = ||f(x') - nearest other centre||^2 - ||f(x') - own centre||^2, the centres taken from the
reference and without the picture's own row; below zero the nearest centre is another class's.
By default pgd.

Source: Snell, Swersky and Zemel 2017, Prototypical networks; Carlini and Wagner 2017, the margin
"""

rotation = Composed(solver="rotation")
"""Rotations and shifts on a grid: each picture's worst by the goal's loss.

Only the box bounds it (norm=none); no gradient is asked for; the goal is stax unless given.

Source: Engstrom et al. 2019, Exploring the landscape of spatial robustness
"""

colour = Composed(solver="colour")
"""Random mixes of the channels: each picture's worst by the goal's loss.

Only the box bounds it (norm=none); no gradient is asked for; the goal is stax unless given.

Source: Kantipudi, Dubey and Chakraborty 2020, Color channel perturbation attacks
"""

stadv = Composed(solver="stadv")
"""Flows: pixels fetched from a little elsewhere, smoothly, so that the goal's loss falls.

Only the box and the flow's own cost bound it (norm=none); the goal is stax unless given.

Source: Xiao et al. 2018, Spatially transformed adversarial examples
"""
