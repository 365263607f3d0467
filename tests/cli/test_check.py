"""``dmltk check``."""

from __future__ import annotations

import json

import pytest
from dmltk.__main__ import main


def called(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


def test_a_part_that_conforms_leaves_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("check", "metric:recall") == 0
    said = capsys.readouterr().out
    assert "metric:recall: it conforms" in said and "figures are named numbers" in said


def test_a_part_that_does_not_leaves_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("check", "loss:npairs", "--json") == 1
    found = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["the_order_of_pictures_does_not_matter"]["status"] == "failed"
    assert (
        "in another order the loss is" in found["the_order_of_pictures_does_not_matter"]["message"]
    )


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("stax", "write KIND:NAME"),
        ("attak:stax", "did you mean 'attack'"),
        ("attack:stx", "did you mean 'stax'"),
    ],
)
def test_what_is_no_part_is_refused(
    capsys: pytest.CaptureFixture[str], part: str, said: str
) -> None:
    assert called("check", part) == 2
    assert said in capsys.readouterr().err
