"""Whether a pipeline holds together; said before anything is built."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from dmltk.errors import UserError, unknown
from dmltk.pipelines.structure import _NAME, Branch, Of, Pipeline, Ramp, Term
from dmltk.spec import parse


def order(pipeline: Pipeline) -> list[str]:
    """Branch names so that each comes after all it needs, in the written order otherwise.

    Raises:
        UserError: naming the branches that need each other.
    """
    names = list(pipeline.branches)
    needs = {name: _needs(branch) for name, branch in pipeline.branches.items()}
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError as error:
        raise UserError(
            f"branches need each other in a circle: {' → '.join(error.args[1])}"
        ) from None
    result: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=names.index)
        result += ready
        sorter.done(*ready)
    return result


def groups(pipeline: Pipeline) -> list[list[str]]:
    """Trained branches that share a ``cat`` or ``args`` term, in order: one backward each."""
    group = {of.branch: {of.branch} for term in pipeline.terms for of in term.references}
    for term in pipeline.terms:
        if term.join != "each":
            joined = set().union(*(group[of.branch] for of in term.references))
            for name in joined:
                group[name] = joined
    found: list[list[str]] = []
    for name in pipeline.branches:
        if name in group and not any(name in other for other in found):
            found.append([n for n in pipeline.branches if n in group[name]])
    return found


def check(pipeline: Pipeline) -> None:
    """Raise a UserError for the first thing in a pipeline that cannot be."""
    if not pipeline.branches:
        raise UserError("a pipeline needs a branch: write branches: {main: {}}")
    if not pipeline.terms:
        raise UserError(
            "a pipeline needs a term: write terms: [{loss: multisimilarity, of: [main]}]"
        )
    parse(pipeline.norms)
    for name in pipeline.heads:
        _named(name, "head")
    for name, branch in pipeline.branches.items():
        _named(name, "branch")
        _check_branch(pipeline, name, branch)
    for number, term in enumerate(pipeline.terms):
        _check_term(pipeline, term, f"terms.{number}")
    order(pipeline)
    _check_use(pipeline)


def _needs(branch: Branch) -> set[str]:
    climbed = {of.branch for term in branch.objective for of in term.references}
    return set(branch.source) | (climbed - {"self"})


def _named(name: str, what: str) -> None:
    if not _NAME.fullmatch(name) or name == "self":
        raise UserError(
            f"'{name}' cannot name a {what}: use lower-case letters, digits, '-' and '_'"
            " ('self' is the attacked branch)"
        )


def _check_branch(pipeline: Pipeline, name: str, branch: Branch) -> None:
    where = f"branches.{name}"
    for source in branch.source:
        if source not in pipeline.branches:
            raise unknown("branch", source, pipeline.branches, f"{where}.source")
    if branch.attack and branch.augment:
        raise UserError(f"{where} has an attack and an augment: make two branches of it")
    for spec in filter(None, (branch.attack, branch.augment)):
        parse(spec)
    if branch.objective and not branch.attack:
        raise UserError(f"{where} has an objective but no attack to climb it: add attack: pgd")
    if branch.strength != 1.0:
        _check_strength(branch, where)
    first, last = branch.take
    if not 0 <= first < last <= 1:
        raise UserError(f"{where}.take={list(branch.take)}: two fractions 0 ≤ a < b ≤ 1 expected")
    for number, term in enumerate(branch.objective):
        place = f"{where}.objective.{number}"
        _check_term(pipeline, term, place, own=True)
        if any(of.branch == name for of in term.references):
            raise UserError(f"{place} names '{name}' itself: the attacked branch is called self")
        if not any(of.branch == "self" for of in term.references):
            raise UserError(f"{place} does not name self, so the attack cannot change it")


def _check_strength(branch: Branch, where: str) -> None:
    if not branch.augment:
        raise UserError(f"{where}.strength is of an augment, and there is none: add augment: views")
    strength = branch.strength
    ends = (strength.start, strength.to) if isinstance(strength, Ramp) else (strength,)
    if not all(0 <= end <= 1 for end in ends):
        raise UserError(f"{where}.strength must stay within 0 and 1")


def _check_term(pipeline: Pipeline, term: Term, where: str, own: bool = False) -> None:
    parse(term.loss)
    if not term.of:
        raise UserError(f"{where}.of is empty: name a branch")
    known = [*pipeline.branches, *(["self"] if own else [])]
    for of in term.references:
        if of.branch not in known:
            raise unknown("branch", of.branch, known, f"{where}.of")
        if of.head not in {"embed", *pipeline.heads}:
            raise unknown("head", of.head, {"embed", *pipeline.heads}, f"{where}.of")
    if not own and all(of.stop or pipeline.branches[of.branch].ema for of in term.references):
        raise UserError(f"{where} stops every gradient: leave '|stop' or ema off one reference")


def _check_use(pipeline: Pipeline) -> None:
    outer: list[Of] = [of for term in pipeline.terms for of in term.references]
    inner = [
        of for b in pipeline.branches.values() for term in b.objective for of in term.references
    ]
    used = {of.branch for of in outer}
    for name in reversed(order(pipeline)):
        if name in used:
            used |= _needs(pipeline.branches[name])
    for name in pipeline.branches:
        if name not in used:
            raise UserError(f"branch '{name}' is used by no term: name it in a term or remove it")
    for head in set(pipeline.heads) - {"embed"}:
        if head not in {of.head for of in [*outer, *inner]}:
            raise UserError(f"head '{head}' is used by no term: name it in a term or remove it")
    trained = {pipeline.branches[of.branch].route for of in outer if not of.stop}
    if "main" not in trained:
        raise UserError(
            "no term trains route main, the one that is deployed: give a branch route: main"
        )
