"""From a bench's configuration to the list of attacks that run, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal

from dmltk import registry
from dmltk.attacks.blackbox import Noise
from dmltk.bench.config import Config
from dmltk.bench.suite import Item, Suite, load
from dmltk.errors import UserError
from dmltk.pipelines.compose import is_file, unique_names
from dmltk.spec import parse

__all__ = ["Plan", "Task", "plan"]


@dataclass(frozen=True)
class Task:
    """One attack at one bound.

    Args:
        number: place in the plan.
        suite: the suite's spec; empty for a single attack.
        name: the attack's short name, unique in its suite; `@surrogate` where it is transferred.
        spec: as it was asked for.
        eps: bound in pixel units.
        attack: built.
        protocols: by name.
        standing: only the queries that the suite has not broken yet are attacked.
        transfer: the attack is made on the surrogate.
    """

    number: int
    suite: str
    name: str
    spec: str
    eps: float
    attack: Any
    protocols: Mapping[str, Any]
    standing: bool = False
    transfer: bool = False

    @property
    def norm(self) -> str:
        """Of the attack's threat."""
        return str(self.attack.threat.norm)

    @property
    def access(self) -> Literal["none", "losses", "gradients", "surrogate"]:
        """What the attack asks of the model."""
        if self.transfer:
            return "surrogate"
        solver = getattr(self.attack, "solver", self.attack)
        if isinstance(solver, Noise) and solver.tries == 1:
            return "none"
        return "losses" if getattr(solver, "gradient_free", False) else "gradients"

    @property
    def key(self) -> str:
        """A file name for what the attack finds."""
        plain = re.sub(r"[^\w@.-]", "_", f"{self.suite}-{self.name}")
        return f"{self.number:03d}-{plain}-{self.eps * 255:.4g}"


@dataclass(frozen=True)
class Plan:
    """All attacks of a bench.

    Args:
        suites: by spec; attacks named singly stand under the empty name.
        tasks: in the order in which they run.
        left_out: why something that a suite names does not run, one sentence each.
    """

    suites: Mapping[str, Suite]
    tasks: tuple[Task, ...]
    left_out: tuple[str, ...]


def plan(config: Config, pictures: int, differentiable: bool = True) -> Plan:
    """Build every attack at every bound, and refuse what cannot be.

    Args:
        config: what was asked for.
        pictures: how many queries there are in the test split.
        differentiable: whether the model gives gradients.

    Raises:
        UserError: for an attack or protocol that cannot be, naming it.
    """
    suites = {spec: _suite(spec) for spec in config.suites}
    if config.attacks:
        items = tuple(Item(attack=spec, protocols=config.protocols) for spec in config.attacks)
        suites[""] = Suite(attacks=items)
    if not suites:
        raise UserError("a bench needs attacks: name a --suite or an --attack")
    planner = _Planner(config, limited=0 < config.limit < pictures)
    tasks: list[Task] = []
    for task in (task for spec, suite in suites.items() for task in planner(spec, suite)):
        if task.access == "gradients" and not differentiable:
            planner.leave_out(f"{task.name} needs gradients, which {config.model} does not give")
        else:
            tasks.append(replace(task, number=len(tasks)))
    left_out = tuple(planner.left_out)
    if not tasks:
        raise UserError("no attack is left to run: " + ("; ".join(left_out) or "every bound is 0"))
    return Plan(suites, tuple(tasks), left_out)


def _suite(spec: str) -> Suite:
    found = load(spec) if is_file(spec) else registry.build("suites", spec)
    if not isinstance(found, Suite):
        raise UserError(f"suite '{spec}' returned a {type(found).__name__} instead of a Suite")
    return found


class _Planner:
    """Builds the tasks of suites, and notes what of them cannot run.

    Args:
        config: of the bench.
        limited: whether only some of the queries are attacked.
    """

    def __init__(self, config: Config, limited: bool) -> None:
        self.config, self.limited = config, limited
        self.left_out: list[str] = []

    def leave_out(self, reason: str) -> None:
        """Note, once, why something does not run."""
        if reason not in self.left_out:
            self.left_out.append(reason)

    def __call__(self, spec: str, suite: Suite) -> Iterator[Task]:
        """A suite's tasks, bound by bound, the smallest first; not numbered yet."""
        names = unique_names([item.attack for item in suite.attacks])
        named = zip(names, suite.attacks, strict=True)
        present = {name: item for name, item in named if self._is_present(item)}
        bounds = {name: self._bounds(item) for name, item in present.items()}
        for eps in sorted({eps for own in bounds.values() for eps in own}):
            for name, item in present.items():
                if eps in bounds[name]:
                    task = Task(
                        number=0,
                        suite=spec,
                        name=name,
                        spec=item.attack,
                        eps=eps,
                        attack=_build(item, eps),
                        protocols=self._protocols(spec, item),
                        standing=suite.standing,
                    )
                    yield task
                    if self.config.surrogate and task.access == "gradients":
                        yield replace(task, name=f"{name}@surrogate", transfer=True)

    def _is_present(self, item: Item) -> bool:
        missing = [need for need in item.needs if not _is_installed(need)]
        if missing:
            self.leave_out(f"{item.attack} needs {missing[0]}: pip install {missing[0]}")
        return not missing

    def _bounds(self, item: Item) -> tuple[float, ...]:
        """Those of the attack, the suite or the bench; what only the box bounds runs once."""
        own = _build(item, 1.0).threat
        if own.norm == "none" or "eps" in parse(item.attack).kwargs:
            return (own.largest,)
        return tuple(eps for eps in item.eps or self.config.eps if eps > 0)

    def _protocols(self, spec: str, item: Item) -> dict[str, Any]:
        found = {p.partition(":")[0]: registry.build("protocols", p) for p in item.protocols}
        whole = [name for name, layout in found.items() if layout.attacked == "all"]
        if not (whole and self.limited):
            return found
        if not spec:
            raise UserError(
                f"protocol '{whole[0]}' attacks every test picture and cannot go with"
                f" --limit {self.config.limit}: use --protocol query"
            )
        self.leave_out(f"protocol '{whole[0]}' of suite {spec} needs all pictures: no --limit")
        return {name: layout for name, layout in found.items() if name not in whole}


def _build(item: Item, eps: float) -> Any:
    context = {"eps": eps, "targets_from": "reference"}
    return registry.build("attacks", item.attack, context=context)


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
