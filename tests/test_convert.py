"""The converter: text to what annotations ask for, and errors that say what would do."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
import pytest
from dmltk.convert import arguments, convert, number, structure
from dmltk.errors import UserError
from hypothesis import given
from hypothesis import strategies as st


def read(value: Any, annotation: Any) -> Any:
    return convert(value, annotation, "here", lambda kind, spec: (kind, spec))


@given(st.integers(0, 999), st.integers(1, 999))
def test_fractions_are_numbers(top: int, bottom: int) -> None:
    assert read(f"{top}/{bottom}", float) == float(Fraction(top, bottom))


@pytest.mark.parametrize(
    ("written", "meant"),
    [(".5/255", Fraction(1, 510)), ("1.5e1 / .25", 60), ("-8/255", Fraction(-8, 255))],
)
def test_fractions_of_decimals_are_numbers(written: str, meant: Any) -> None:
    assert read(written, float) == float(meant)


@pytest.mark.parametrize("written", ["1/2/3", "/2", "1/", "1/0", "1/nan", "a/b", "1/1e-400"])
def test_what_is_no_fraction_is_no_number(written: str) -> None:
    assert number(written) is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_their_text(value: float) -> None:
    assert read(repr(value), float) == value


@given(st.integers())
def test_whole_numbers_stay_exact(value: int) -> None:
    assert number(str(value)) == value


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        (".1", float, 0.1),
        ("1e-4", float, 1e-4),
        ("3", int | float, 3),
        ("true", bool, True),
        ("False", bool | None, False),
        ("none", float | None, None),
        ("paper", float | str, "paper"),
        (".5", float | str, 0.5),
        (["3", "5"], list[int], [3, 5]),
        (["0", "1/2"], tuple[float, float], (0.0, 0.5)),
        ({"a": "1/4"}, dict[str, float], {"a": 0.25}),
        (["a=1/4", " b =x=y"], dict[str, float | str], {"a": 0.25, "b": "x=y"}),
        ("avg", Literal["avg", "max"], "avg"),
        ("8", str, "8"),
    ],
)
def test_text_becomes_what_is_asked_for(text: Any, annotation: Any, expected: Any) -> None:
    found = read(text, annotation)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "said"),
    [
        ("2", Annotated[float, msgspec.Meta(le=1)], "<= 1"),
        (2.0, Annotated[float, msgspec.Meta(le=1)], "<= 1"),
        ("x", int, "expected a number"),
        ("1.5", int, "expected int"),
        ("nan", Annotated[float, msgspec.Meta(ge=0)], "expected a number"),
        ("inf", float, "expected a number"),
        ("1/0", float, "expected a number"),
        ("3", list[int], r"expected a list such as \[1,2\]"),
        (["a=1", "a=2"], dict[str, int], r"expected each key once, such as \[a=1,b=2\]"),
        (["a"], float | dict[str, float], "expected each key once"),
        ("avgg", Literal["avg", "max"], "did you mean 'avg'"),
    ],
)
def test_what_does_not_fit_is_refused_by_key_and_value(
    value: Any, annotation: Any, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        read(value, annotation)


def test_a_protocols_kind_is_built_and_other_annotations_pass() -> None:
    class Goal:
        dmltk_kind = "goals"

    marker = object()
    assert read("flee", Goal) == ("goals", "flee")
    assert read(marker, Goal) is marker
    assert read(marker, pytest.Item) is marker


def test_unknown_and_missing_arguments_are_named() -> None:
    def factory(steps: int, gain: float = 1.0) -> None: ...

    signature = inspect.signature(factory, eval_str=True)
    with pytest.raises(UserError, match="unknown argument 'step' in solver 'x'; did you mean"):
        arguments(signature, {"step": 1}, "solver 'x'", lambda *_: None)
    with pytest.raises(UserError, match="needs steps"):
        arguments(signature, {}, "solver 'x'", lambda *_: None)


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, Inner] = {}
    row: tuple[Inner, ...] = ()
    either: float | Inner = 1.0


def test_structures_are_read_from_text_with_the_path_in_errors() -> None:
    data = {"parts": {"a": {"rate": "1/4"}}, "row": [{"rate": "2"}, ""], "either": {"rate": "1"}}
    assert structure(data, Outer, "outer") == Outer(
        {"a": Inner(0.25)}, (Inner(2), Inner()), Inner(1)
    )
    with pytest.raises(
        UserError, match=r"unknown key 'rte' in outer\.parts\.a; did you mean 'rate'"
    ):
        structure({"parts": {"a": {"rte": "1"}}}, Outer, "outer")
    with pytest.raises(UserError, match=r"outer\.row\.1\.rate=-1"):
        structure({"row": [{}, {"rate": "-1"}]}, Outer, "outer")
    with pytest.raises(UserError, match=r"outer\.row='x': expected a list"):
        structure({"row": "x"}, Outer, "outer")
