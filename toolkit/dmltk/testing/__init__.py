"""The conformance kit: what every part of a kind must do, checked on tiny models and data.

From pytest::

    from dmltk.testing import parametrize_with_checks

    @parametrize_with_checks(["attack:mine"])
    def test_mine(part, check):
        check(part)

Without it, ``check("attack", "mine")`` gives a list of results, and ``dmltk check attack:mine``
prints them.
"""

from __future__ import annotations

from dmltk.testing.kit import Check, Result, check, checks_of, parametrize_with_checks
from dmltk.testing.part import Part, Skip

__all__ = ["Check", "Part", "Result", "Skip", "check", "checks_of", "parametrize_with_checks"]
