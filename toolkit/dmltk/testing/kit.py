"""Which checks a kind has, and how they are run: by a call, or by pytest."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dmltk import registry
from dmltk.errors import unknown
from dmltk.spec import Spec, as_spec
from dmltk.testing.part import Part, Skip

__all__ = ["Check", "Result", "check", "checks_of", "parametrize_with_checks"]

Check = Callable[[Part], None]
PREFIX = "check_"


@dataclass(frozen=True)
class Result:
    """What became of one check.

    Args:
        check: its name, without ``check_``.
        status: ``expected`` is a failure that was foretold.
        message: why it failed or does not apply.
        trace: where it failed.
    """

    check: str
    status: Literal["passed", "failed", "skipped", "expected"]
    message: str = ""
    trace: str = ""


def checks_of(kind: str) -> dict[str, Check]:
    """The checks of a kind by name, those of every kind first.

    Args:
        kind: singular or plural.
    """
    kind = registry.plural(kind)
    found: dict[str, Check] = {}
    for module in ("common", kind):
        named = vars(importlib.import_module(f"dmltk.testing.checks.{module}"))
        own = {name.removeprefix(PREFIX): f for name, f in named.items() if name.startswith(PREFIX)}
        found |= {name: f for name, f in own.items() if kind in getattr(f, "kinds", (kind,))}
    return found


def check(
    kind: str, spec: str | Spec, *, expected_failed_checks: Mapping[str, str] | None = None
) -> list[Result]:
    """Run every check of a kind on a registered thing.

    Args:
        kind: singular or plural.
        spec: its name with arguments.
        expected_failed_checks: names of checks that it is known to fail, each with the reason;
            one that passes all the same is a failure.

    Returns:
        One result a check.

    Raises:
        UserError: an unknown kind, name or check.
    """
    part = Part(registry.plural(kind), as_spec(spec))
    registry.resolve(part.kind, part.spec.name)
    checks = checks_of(kind)
    expected = _known(expected_failed_checks or {}, checks)
    return [_result(part, name, run, expected.get(name)) for name, run in checks.items()]


def parametrize_with_checks(
    parts: Sequence[str], *, expected_failed_checks: Mapping[str, str] | None = None
) -> Any:
    """A pytest decorator: one case for each part and check, as arguments `part` and `check`.

    Args:
        parts: each as ``kind:spec``.
        expected_failed_checks: names of checks that each of these parts is known to fail, with
            the reason; one that passes all the same fails.
    """
    import pytest

    cases = []
    for part in map(Part.of, parts):
        checks = checks_of(part.kind)
        expected = _known(expected_failed_checks or {}, checks)
        for name, run in checks.items():
            foretold = expected.get(name)
            marks = [pytest.mark.xfail(reason=foretold, strict=True)] if foretold else []
            cases.append(pytest.param(part, _skipping(run), marks=marks, id=f"{part}-{name}"))
    return pytest.mark.parametrize(("part", "check"), cases)


def _known(expected: Mapping[str, str], checks: Mapping[str, Check]) -> Mapping[str, str]:
    for name in expected:
        if name not in checks:
            raise unknown("check", name, checks)
    return expected


def _result(part: Part, name: str, run: Check, foretold: str | None) -> Result:
    try:
        run(part)
    except Skip as reason:
        return Result(name, "skipped", str(reason))
    except Exception as error:
        if foretold:
            return Result(name, "expected", foretold)
        said = (
            f"{error}" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        )
        return Result(name, "failed", said, traceback.format_exc())
    if foretold:
        return Result(name, "failed", f"it passes, though it was to fail: {foretold}")
    return Result(name, "passed")


def _skipping(run: Check) -> Check:
    """The same for pytest, which has a word of its own for what does not apply."""

    def checked(part: Part) -> None:
        import pytest

        try:
            run(part)
        except Skip as reason:
            pytest.skip(str(reason))

    return checked
