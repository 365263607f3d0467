"""The public names; a name that vanishes or appears is a decision, not an accident."""

from __future__ import annotations

from pathlib import Path

import dmltk

LISTED = Path(__file__).parent / "public_names.txt"


def test_public_names_are_those_in_the_file() -> None:
    assert sorted(dmltk.__all__) == LISTED.read_text("utf-8").split()


def test_every_public_name_is_there() -> None:
    for name in dmltk.__all__:
        assert getattr(dmltk, name) is not None
        assert name in dir(dmltk)


def test_building_by_kind_is_the_same_call() -> None:
    assert dmltk.pipelines.build("st") == dmltk.build("pipeline", "st")
    assert type(dmltk.attacks.build("stax")) is type(dmltk.build("attacks", "stax"))
