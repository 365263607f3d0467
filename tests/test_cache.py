"""Where fetched things are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from dmltk.cache import cache_dir


def test_the_named_folder_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLTK_CACHE", "~/somewhere")
    assert cache_dir() == Path.home() / "somewhere"


@pytest.mark.parametrize(
    ("platform", "variable", "start"),
    [("linux", "XDG_CACHE_HOME", "/x"), ("win32", "LOCALAPPDATA", "/x"), ("darwin", "", "")],
)
def test_else_it_is_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, start: str
) -> None:
    monkeypatch.delenv("DMLTK_CACHE", raising=False)
    monkeypatch.setattr("sys.platform", platform)
    if variable:
        monkeypatch.setenv(variable, start)
    folder = Path(start) if start else Path.home() / "Library" / "Caches"
    assert cache_dir() == folder / "dmltk"
