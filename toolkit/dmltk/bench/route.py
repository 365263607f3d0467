"""One route of a model under all attacks of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dmltk.attacks.probe import differentiable
from dmltk.bench.engine import AttackFailed, Engine, Progress, Victim
from dmltk.bench.outcomes import Ledger
from dmltk.bench.pictures import Album
from dmltk.bench.plan import Task
from dmltk.bench.prepare import Prepared
from dmltk.bench.sanity import MASKING, Check, of_evaluations, of_model
from dmltk.bench.state import Outcome, State
from dmltk.errors import DmltkError
from dmltk.evaluation.evaluate import Judge, no_draws, of_split
from dmltk.evaluation.protocols import Embedded
from dmltk.folder import RunFolder

__all__ = ["Found", "attack_route"]

CHECKED = 32
"""Queries that the sanity checks look at."""


@dataclass(frozen=True)
class Found:
    """What the attacks on one route gave."""

    evaluations: list[dict[str, Any]]
    checks: list[Check]
    done: list[tuple[Task, Outcome]]
    engine: Engine


def attack_route(
    ready: Prepared,
    route: str,
    model: Any,
    folder: RunFolder,
    progress: Progress,
    note: Callable[[str], None],
) -> Found:
    """Attack one route, or take up what is kept of it.

    Args:
        ready: the bench.
        route: its name.
        model: its embedder.
        folder: of the bench.
        progress: told what is going on, how far, of how many.
        note: told each warning.
    """
    test = ready.dataset.test
    album = _album(ready, route)
    engine = _engine(ready, model, State(folder.file("state") / route), progress, album)
    ledger = Ledger(test, engine.victim.clean, ready.metrics, engine.found, route)
    evaluations = ledger.clean_entries(torch.as_tensor(ready.rows))
    done: list[tuple[Task, Outcome]] = []
    failed: list[AttackFailed] = []
    for task in ready.plan.tasks:
        try:
            outcome = engine(task)
        except AttackFailed as error:
            note(f"{task.name} at {task.eps * 255:.3g}/255 failed and is left out: {error}")
            failed.append(error)
            continue
        if outcome is None:
            continue
        done.append((task, outcome))
        evaluations += ledger.entries(task, outcome)
        if album:
            album.close(task, outcome)
    if failed and not done:
        raise failed[0].__cause__ or failed[0]
    for message in dict.fromkeys(message for _, outcome in done for message in outcome.notes):
        note(message)
    if evaluations[0]["metrics"].get("collapsed"):
        note(
            f"the embeddings of route {route} have collapsed (mean cosine"
            f" {evaluations[0]['metrics']['mean_cosine']:.3f}): no figure of them speaks of"
            " robustness"
        )
    checks = of_evaluations(evaluations) + _checks(ready, model, engine)
    for check in checks:
        if not check.passed:
            note(f"failed check: {check.name} ({check.seen}); {MASKING}")
    return Found(evaluations, checks, done, engine)


def _album(ready: Prepared, route: str) -> Album | None:
    named = ready.config.save_adversarial
    if not named:
        return None
    album = Album(Path(named, route) if len(ready.models) > 1 else Path(named), ready.dataset.test)
    album.open()
    return album


def _engine(
    ready: Prepared, model: Any, state: State, progress: Progress, album: Album | None
) -> Engine:
    victim = Victim(model, _embedded(ready, model, "clean", state, progress))
    surrogate = None
    if ready.surrogate is not None:
        own = _embedded(ready, ready.surrogate, "clean@surrogate", state, progress)
        surrogate = Victim(ready.surrogate, own)
    config = ready.config
    return Engine(
        split=ready.dataset.test,
        victim=victim,
        surrogate=surrogate,
        rows=ready.rows,
        batch=config.batch,
        seed=config.seed,
        state=state,
        progress=progress,
        save=album.add if album else None,
    )


def _embedded(ready: Prepared, model: Any, key: str, state: State, progress: Progress) -> Embedded:
    """The whole test split's embeddings, kept for a resume."""
    test = ready.dataset.test
    kept = state.load(key)
    if kept is not None:
        return of_split(test, kept.index, kept.embeddings)
    judge = Judge(test, {}, [], ready.config.batch, (), no_draws, progress)
    found = judge.embed(model)
    nothing = torch.zeros(len(found.index))
    state.save(key, Outcome(found.index, found.embeddings, nothing, nothing))
    return found


def _checks(ready: Prepared, model: Any, engine: Engine) -> list[Check]:
    """Small attacks of their own on some queries that are found clean."""
    rows = [row for row in ready.rows if engine.found[row]][:CHECKED]
    bounds = sorted({task.eps for task in ready.plan.tasks if task.norm == "linf"})
    if not rows or not differentiable(model):
        return []
    batch = engine.batch_of(engine.victim, rows)
    kept = torch.as_tensor(rows)
    eps = bounds[len(bounds) // 2] if bounds else 4 / 255
    try:
        return of_model(model, batch, lambda z: engine.ranks(kept, z), eps, ready.config.seed)
    except DmltkError as error:
        return [Check("the checks' own attacks work", False, str(error))]
