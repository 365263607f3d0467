"""Which miners, reducers, distances and regularizers go with a loss, and how `show` says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dmltk.errors import UserError
from dmltk.losses.requirements import (
    DISTANCES,
    LOSSES,
    MINERS,
    REDUCERS,
    REGULARIZERS,
    Distance,
    Loss,
    Miner,
    Reducer,
    Refused,
    Regularizer,
    short_name,
)

Facts = Loss | Miner | Reducer | Distance | Regularizer | Refused
TABLES: dict[str, Mapping[str, Facts]] = {
    "loss": LOSSES,
    "miner": MINERS,
    "reducer": REDUCERS,
    "distance": DISTANCES,
    "regularizer": REGULARIZERS,
}
_TAKES = {
    "labels": "embeddings and labels",
    "pictures": "embeddings, no labels",
    "views": "two embeddings of each picture, no labels",
}
_GROWS = {
    "triplets": "grows with the triplets of a batch",
    "positives x pictures": "grows with positive pairs times pictures of a batch",
    "positives x negatives": "grows with positive times negative pairs of a batch",
    "cube": "grows with the cube of a batch's pictures",
}


def facts_of(cls: type) -> Facts | None:
    """What the tables say of a library class, ours of the same name too; None of any other."""
    return next((table[cls.__name__] for table in TABLES.values() if cls.__name__ in table), None)


def names(kind: str) -> list[str]:
    """The parts of a kind that a spec may name."""
    return sorted(short_name(k) for k, v in TABLES[kind].items() if not isinstance(v, Refused))


def refusal(kind: str, cls: str) -> UserError:
    """Why a class of the library cannot be named in a spec."""
    refused = TABLES[kind][cls]
    reason = refused.reason if isinstance(refused, Refused) else ""
    return UserError(f"{kind} '{short_name(cls)}' cannot be used here: {reason}")


def distances(facts: Facts | None) -> list[str]:
    """Those that something may compare by, its own first; none where it is fixed."""
    if not isinstance(facts, Loss | Miner | Regularizer) or facts.choice == "fixed":
        return []
    if facts.choice == "same":
        return [facts.distance]
    wanted = {"similarity": (True,), "distance": (False,), "any": (True, False)}[facts.choice]
    found = [
        short_name(name)
        for name, distance in DISTANCES.items()
        if isinstance(distance, Distance) and distance.similarity in wanted
    ]
    return sorted(found, key=lambda name: (name != facts.distance, name))


def reducers(facts: Facts | None) -> list[str]:
    """Those that can make one number of something's losses, its own first."""
    if isinstance(facts, Reducer):  # one reducer within another has a loss a picture
        facts = Regularizer("", "fixed", reduces="pictures")
    if not isinstance(facts, Loss | Regularizer) or facts.reduces == "whole":
        return []
    found = [
        short_name(name)
        for name, reducer in REDUCERS.items()
        if isinstance(reducer, Reducer)
        and facts.reduces in reducer.reduces
        and facts.divisor >= reducer.divisor
    ]
    return sorted(found, key=lambda name: (name != facts.reducer, name))


def regularizers(facts: Facts | None, of: str) -> list[str]:
    """Those of the `embedding` or of the `weight`, which are a loss's proxies."""
    several = isinstance(facts, Loss) and bool(facts.centers) and of == "weight"
    return sorted(
        short_name(name)
        for name, regularizer in REGULARIZERS.items()
        if isinstance(regularizer, Regularizer) and several >= regularizer.centers
    )


def allowed(facts: Facts | None) -> dict[str, list[str]]:
    """By argument, the parts that go with something."""
    return {
        "distance": distances(facts),
        "reducer": reducers(facts),
        "embedding_regularizer": regularizers(facts, "embedding"),
        "weight_regularizer": regularizers(facts, "weight"),
    }


def check(facts: Facts | None, given: Mapping[str, Any], where: str) -> None:
    """Refuse parts that do not go together; those of no library class are let through.

    Args:
        facts: what is built.
        given: its arguments, parts among them.
        where: for the error.

    Raises:
        UserError: naming those that would do.
    """
    for argument, fitting in allowed(facts).items():
        part = given.get(argument)
        facts_of_part = None if part is None else facts_of(type(part))
        if facts_of_part is None:
            continue
        name = short_name(type(part).__name__)
        if name not in fitting:
            raise UserError(
                f"{where} cannot take {argument} '{name}'{_reason(facts_of_part, facts)}:"
                f" it takes {', '.join(fitting) or 'none'}"
            )
        if isinstance(facts_of_part, Regularizer) and facts_of_part.centers:
            _check_centers(part, given["num_classes"], _centers(facts, given), where)


def _centers(facts: Facts | None, given: Mapping[str, Any]) -> int:
    return given[facts.centers] if isinstance(facts, Loss) and facts.centers else 1


def _check_centers(regularizer: Any, classes: int, centers: int, where: str) -> None:
    mask = regularizer.same_class_mask
    pairs = classes * centers * (centers - 1) // 2
    if len(mask) != classes * centers or int(mask.sum()) != pairs:
        raise UserError(
            f"{where} has other proxies than its weight_regularizer: give that"
            f" num_classes={classes} and centers_per_class={centers}"
        )


def _reason(part: Facts, facts: Facts | None) -> str:
    if isinstance(part, Refused):
        return f", as {part.reason}"
    if isinstance(part, Regularizer):
        return ", which is of several proxies a class"
    if isinstance(part, Reducer) and part.divisor:
        return ", as it names no divisor"
    if isinstance(part, Reducer) and isinstance(facts, Loss):
        return f", its losses are of {facts.reduces}"
    return ""


def rows(facts: Loss, given: Iterable[str] = ()) -> dict[str, str]:
    """A loss's requirements as `dmltk show` prints them.

    Args:
        facts: the loss's.
        given: arguments that have a default here.
    """
    chosen = [
        f"{short_name(name)} ({miner.chooses}{', drawn' if miner.draws else ''})"
        for name, miner in MINERS.items()
        if isinstance(miner, Miner)
    ]
    as_what = {"weights": "weights of the pictures"}.get(facts.mined, facts.mined)
    found = {
        "takes": _TAKES[facts.takes],
        "needs": ", ".join(name for name in facts.needs if name not in given),
        "trains": facts.owns,
        "compares by": ", ".join(distances(facts)) or facts.distance,
        "beside the batch": "compares with other embeddings" * facts.references,
        "reduces": f"{facts.reduces}, by {', '.join(reducers(facts))}" * bool(reducers(facts)),
        "miners": f"{', '.join(chosen)}; taken as {as_what}" * (facts.mined != "nothing"),
        "may stand in": ", ".join(facts.inside),
        "memory": _GROWS.get(facts.largest, ""),
    }
    return {name: text for name, text in found.items() if text}
