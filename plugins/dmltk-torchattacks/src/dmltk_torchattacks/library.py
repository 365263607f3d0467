"""torchattacks itself: imported when it is asked for, its arguments read from its signatures."""

from __future__ import annotations

import importlib
import inspect
import re
from inspect import Parameter
from types import ModuleType
from typing import Annotated, Any, Literal

from dmltk.errors import UserError, unknown
from msgspec import Meta

from dmltk_torchattacks.table import TABLE, Row

OURS = ("model", "seed", "verbose", "batch_max", "norm")
"""Arguments of the classes that the toolkit gives: never the user's."""

RADIUS = ("eps", "max_epsilon")
"""How the classes call the bound on a change."""

REAL = ("c", "kappa", "lam", "scale", "nsig")
"""Arguments that are real numbers though their defaults are written as integers."""

FROM_ZERO = ("steps", "restarts")
"""Counts that may be zero."""

CHOICES = {
    "kernel_name": ("gaussian", "linear", "uniform"),
    "noise_type": ("guassian", "uniform"),
    "pixel_mapping": (
        "random",
        "similarity",
        "similarity_random",
        "distance",
        "distance_random",
    ),
    "version": ("standard", "plus", "rand"),
}


def library() -> ModuleType:
    """The installed torchattacks.

    Raises:
        UserError: where it cannot be imported, with the command that installs it.
    """
    try:
        return importlib.import_module("torchattacks")
    except ImportError as error:
        raise UserError(
            f"torchattacks cannot be imported ({error}): run "
            "`pip install --no-deps torchattacks` (without its dependencies, for it pins an old "
            "requests that it never uses) and `pip install scipy`"
        ) from error


def find(name: str) -> tuple[type[Any], Row]:
    """A class of torchattacks and its row of the table; upper and lower case are one.

    Raises:
        UserError: for a name that is unknown, refused, or missing in the installed version.
    """
    by_case = {known.lower(): known for known in TABLE}
    known = by_case.get(name.lower())
    if known is None:
        usable = [each for each, row in TABLE.items() if row.way != "refused"]
        raise unknown("class", name, usable, "torchattacks")
    if TABLE[known].way == "refused":
        raise UserError(f"torchattacks:{known} is no attack on embeddings: {TABLE[known].reason}")
    installed = library()
    if not hasattr(installed, known):
        version = getattr(installed, "__version__", "installed")
        raise UserError(f"torchattacks {version} has no class {known}: install another version")
    return getattr(installed, known), TABLE[known]


def radius_of(cls: type[Any]) -> Parameter | None:
    """The class's bound on a change, under its own name."""
    parameters = inspect.signature(cls).parameters
    return next((parameters[name] for name in RADIUS if name in parameters), None)


def takes(cls: type[Any], name: str) -> bool:
    """Whether a class has an argument of that name."""
    return name in inspect.signature(cls).parameters


def default_of(cls: type[Any], name: str) -> Any:
    """A class's own default of an argument."""
    return inspect.signature(cls).parameters[name].default


def arguments_of(cls: type[Any], row: Row) -> dict[str, Parameter]:
    """A class's own arguments with annotations, without those that the toolkit gives."""
    meanings = _meanings(inspect.getdoc(cls) or "")
    hidden = {*OURS, *RADIUS, *(("loss",) if row.way == "callable" else ())}
    return {
        name: Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=parameter.default,
            annotation=_annotation(name, parameter.default, row, meanings.get(name)),
        )
        for name, parameter in inspect.signature(cls).parameters.items()
        if name not in hidden
    }


def _annotation(name: str, default: object, row: Row, meaning: str | None) -> Any:
    """The type of an argument by its default, with its range and what it means."""
    lowest = None
    if isinstance(default, str):
        words = {**CHOICES, **row.choices}.get(name, ())
        base: Any = Literal[tuple(dict.fromkeys((default, *words)))]
    elif isinstance(default, tuple):
        base = tuple.__class_getitem__(tuple(int | float for _ in default))
    elif isinstance(default, int) and not isinstance(default, bool) and name not in REAL:
        base, lowest = int, row.least.get(name, 0 if name in FROM_ZERO else 1)
    else:
        base = bool if isinstance(default, bool) else float
    return Annotated[base, Meta(ge=lowest, description=meaning)]


def _meanings(document: str) -> dict[str, str]:
    """What a class's docstring says of its arguments, without the defaults."""
    lines = re.findall(r"^\s+(\w+) \([^)]*\): (.+)$", document, re.M)
    return {name: re.sub(r"\s*\(Default:.*$", "", said).strip() for name, said in lines}
