from __future__ import annotations

import pytest
from dmltk.evaluation.ers import Ers


def test_the_published_row_gives_the_published_score() -> None:
    """Swin-T with ACT on CUB, as its authors' table has it: 38.3."""
    found = Ers(0.199, 0.351, 0.200, 0.259, 0.485, 0.779, 0.154, 0.137, 0.207, 0.014)
    assert round(found.score, 1) == 38.3
    assert found.clipped == found.score


def test_an_untouched_model_scores_a_hundred_and_a_broken_one_nothing() -> None:
    assert Ers(0.5, 0, 0.5, 0, 0, 0, 1, 1, 1, 1).terms == (100,) * 10
    assert Ers(0, 1, 0, 1, 1, 2, 0, 0, 0, 0).score == 0


def test_terms_that_leave_their_range_are_cut_in_the_second_score() -> None:
    found = Ers(0.9, 0, 0.5, 0, -0.5, 0, 1, 1, 1, 1)
    assert found.terms[0] == 180 and found.terms[4] == pytest.approx(150)
    assert found.score == pytest.approx(113) and found.clipped == pytest.approx(100)
