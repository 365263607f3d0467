"""Where the toolkit keeps what it fetched: one folder per user, or the one that is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """The folder of fetched data sets and weights (it need not exist yet).

    Returns:
        `$DMLTK_CACHE` where it is set, else `dmltk` in the platform's cache folder of the user.
    """
    named = os.environ.get("DMLTK_CACHE", "")
    if named:
        return Path(named).expanduser()
    return _user_cache() / "dmltk"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
