"""A suite: named attacks and protocols, as data."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Protocol

import msgspec

from dmltk import convert
from dmltk.errors import UserError
from dmltk.pipelines.structure import read_file, read_yaml

__all__ = ["Item", "Suite", "Suites", "load", "shipped"]

Eps = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attack of a suite.

    Args:
        attack: attack spec.
        eps: bounds in pixel units; empty for those of the bench.
        protocols: who is attacked against which gallery; protocol specs.
        needs: distributions without which the attack is left out, with a warning.
    """

    attack: str
    eps: tuple[Eps, ...] = ()
    protocols: tuple[str, ...] = ("query",)
    needs: tuple[str, ...] = ()


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attacks that belong together.

    Args:
        attacks: in the order in which they run.
        standing: each attack is spared the queries that an earlier one, or a smaller bound,
            has broken already. Only the worst case over the suite has a meaning then.
        score: `ers` for the empirical robustness score of ten attacks.
    """

    attacks: tuple[Item, ...]
    standing: bool = False
    score: Literal["", "ers"] = ""


class Suites(Protocol):
    """What the factory of a suite returns: a :class:`Suite`."""

    dmltk_kind: ClassVar[str] = "suites"


def shipped(name: str) -> Suite:
    """A suite of the toolkit's own, from its YAML file."""
    file = resources.files("dmltk.bench") / "suites" / f"{name}.yaml"
    return _checked(read_yaml(file.read_text("utf-8"), f"suite {name}"), f"suite {name}")


def load(path: str | Path, allow: Sequence[str] = ()) -> Suite:
    """A suite from a YAML file.

    Args:
        path: the file, with the keys `attacks`, `standing` and `score`.
        allow: packages from which the file may name things by import path.

    Raises:
        UserError: no file, not YAML, unknown keys, an import that was not allowed.
    """
    return _checked(read_file(path, "suite", allow), Path(path).name)


def _checked(data: dict[str, object], where: str) -> Suite:
    suite = convert.structure(data, Suite, where)
    if not suite.attacks:
        raise UserError(f"{where} holds no attack: list some under 'attacks'")
    if suite.standing and any(item.protocols != ("query",) for item in suite.attacks):
        raise UserError(f"{where}: standing queries have a meaning for protocol query alone")
    return suite
