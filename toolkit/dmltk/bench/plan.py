"""From a bench's configuration to the list of attacks that run, in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from dmltk import registry
from dmltk.bench.config import Config
from dmltk.bench.suite import Item, Suite, load
from dmltk.errors import UserError
from dmltk.pipelines.compose import is_file
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
    left_out: list[str] = []
    tasks: list[Task] = []
    for spec, suite in suites.items():
        for made in _of_suite(spec, suite, config, pictures, left_out):
            if not (differentiable or made["transfer"] or _is_free(made["attack"])):
                reason = f"{made['name']} needs gradients, which {config.model} does not give"
                left_out.append(reason)
                continue
            tasks.append(Task(number=len(tasks), **made))
    left_out = list(dict.fromkeys(left_out))
    if not tasks:
        raise UserError("no attack is left to run: " + ("; ".join(left_out) or "every bound is 0"))
    return Plan(suites, tuple(tasks), tuple(left_out))


def _suite(spec: str) -> Suite:
    found = load(spec) if is_file(spec) else registry.build("suites", spec)
    if not isinstance(found, Suite):
        raise UserError(f"suite '{spec}' returned a {type(found).__name__} instead of a Suite")
    return found


def _of_suite(
    spec: str, suite: Suite, config: Config, pictures: int, left_out: list[str]
) -> Iterator[dict[str, Any]]:
    """The fields of a suite's tasks; a standing suite goes bound by bound, smallest first."""
    named = list(zip(_names([item.attack for item in suite.attacks]), suite.attacks, strict=True))
    present = []
    for name, item in named:
        missing = [need for need in item.needs if not _is_installed(need)]
        if missing:
            left_out.append(f"{item.attack} needs {missing[0]}: pip install {missing[0]}")
        else:
            present.append((name, item))
    bounds = {name: _bounds(item, config) for name, item in present}
    for eps in sorted({eps for own in bounds.values() for eps in own}):
        for name, item in present:
            if eps in bounds[name]:
                yield from _at(spec, suite, name, item, eps, config, pictures, left_out)


def _bounds(item: Item, config: Config) -> tuple[float, ...]:
    """The bounds at which an attack runs: its own, the suite's, or those of the bench.

    One that only the box bounds runs once.
    """
    attack = registry.build("attacks", item.attack, context={"targets_from": "reference"})
    if attack.threat.norm == "none" or "eps" in parse(item.attack).kwargs:
        return (attack.threat.largest,)
    return tuple(eps for eps in item.eps or config.eps if eps > 0)


def _at(
    spec: str,
    suite: Suite,
    name: str,
    item: Item,
    eps: float,
    config: Config,
    pictures: int,
    left_out: list[str],
) -> Iterator[dict[str, Any]]:
    context = {"eps": eps, "targets_from": "reference"}
    attack = registry.build("attacks", item.attack, context=context)
    protocols = {p.partition(":")[0]: registry.build("protocols", p) for p in item.protocols}
    whole = [p for p, layout in protocols.items() if layout.attacked == "all"]
    if whole and 0 < config.limit < pictures:
        if not spec:
            raise UserError(
                f"protocol '{whole[0]}' attacks all {pictures} test pictures and cannot go with"
                f" --limit {config.limit}: use --protocol query"
            )
        left_out.append(f"protocol '{whole[0]}' of suite {spec} needs all pictures: no --limit")
        protocols = {p: layout for p, layout in protocols.items() if p not in whole}
    common = {
        "suite": spec,
        "spec": item.attack,
        "eps": eps,
        "attack": attack,
        "protocols": protocols,
        "standing": suite.standing,
    }
    yield {**common, "name": name, "transfer": False}
    if config.surrogate and not _is_free(attack):
        yield {**common, "name": f"{name}@surrogate", "transfer": True}


def _names(specs: Sequence[str]) -> list[str]:
    """Short names, each once; one that is first of all given a word has it in its name."""
    parsed = [parse(spec) for spec in specs]
    words = [".".join([p.name, *(a for a in p.args if isinstance(a, str))]) for p in parsed]
    return [word if not n else f"{word}{n + 1}" for word, n in _counted(words)]


def _counted(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for word in words:
        yield word, seen[word]
        seen[word] += 1


def _is_free(attack: Any) -> bool:
    return bool(getattr(getattr(attack, "solver", attack), "gradient_free", False))


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
