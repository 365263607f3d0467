from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from dmltk.data import catalogue
from dmltk.errors import UserError


def test_everything_that_can_be_got_is_there_and_described() -> None:
    assert set(catalogue.GETTABLE) == set(catalogue.ABOUT)
    for target in catalogue.GETTABLE.values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))
    assert all("\n" not in text for text in catalogue.ABOUT.values())


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'emoji'"):
        catalogue.get("emojis")


def test_a_name_is_passed_to_its_function(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("dmltk.data.emoji.get", lambda report: report("x") or tmp_path)
    lines: list[str] = []
    assert catalogue.get("emoji", lines.append) == tmp_path
    assert lines == ["x"]


def test_the_table_is_read_without_torch() -> None:
    code = "import sys, dmltk.data.catalogue; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_data_sets_and_augments_are_built_by_spec() -> None:
    from dmltk import registry
    from dmltk.data import build

    data = build("glyphs:classes=4,per_class=2", context={"size": 12, "device": "cpu"})
    assert data.card["pictures"] == {"train": 4, "test": 4}
    assert data.train[0][0].shape == (3, 12, 12)
    with pytest.raises(UserError):
        build("glyphs:classes=1")
    assert callable(registry.build("augments", "crop:scale_min=1/2"))
