"""What every suite must do."""

from __future__ import annotations

import msgspec

from dmltk import convert, registry
from dmltk.bench.suite import Suite
from dmltk.testing.part import CONTEXT, Part


def use(part: Part) -> dict[str, object]:
    """The suite as plain data."""
    found: dict[str, object] = msgspec.to_builtins(part.build())
    return found


def check_it_holds_attacks(part: Part) -> None:
    """A :class:`Suite` with one attack at least."""
    built = part.build()
    assert isinstance(built, Suite), f"the factory gives a {type(built).__name__}, no Suite"
    assert built.attacks, "it holds no attack"


def check_its_attacks_and_protocols_can_be_built(part: Part) -> None:
    """Everything it names is there, but for what needs something that is not installed."""
    for item in part.build().attacks:
        for spec in item.protocols:
            registry.build("protocols", spec)
        if not item.needs:
            registry.build("attacks", item.attack, context=CONTEXT)


def check_it_survives_plain_data(part: Part) -> None:
    """Written as plain data and read again it is the same."""
    built = part.build()
    again = convert.structure(msgspec.to_builtins(built), Suite, "suite")
    assert again == built, "written as data it is another suite"
