"""Checks for parts of every kind."""

from __future__ import annotations

import copy
import importlib
import pickle
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmltk import convert
from dmltk.description import describe
from dmltk.errors import PluginError
from dmltk.spec import Spec, parse, text
from dmltk.testing.kit import Check
from dmltk.testing.part import Part

METHODS = ("attacks", "goals", "solvers", "norms", "losses")
TRAVELLING = (*METHODS, "pipelines", "datasets", "models", "suites")


def only(*kinds: str) -> Callable[[Check], Check]:
    """Marks a check as one for these kinds."""

    def marked(check: Check) -> Check:
        check.kinds = kinds  # type: ignore[attr-defined]
        return check

    return marked


def every(check: Check) -> Check:
    """Marks a check as one for all kinds."""
    from dmltk.registry import KINDS

    return only(*KINDS)(check)


def use(part: Part) -> Any:
    """The part's plain job on tiny data."""
    return importlib.import_module(f"dmltk.testing.checks.{part.kind}").use(part)


@every
def check_every_parameter_has_a_name(part: Part) -> None:
    """No ``*args`` and no ``**kwargs``: an argument that is misspelt must be refused."""
    try:
        named = part.parameters
    except PluginError as error:
        raise AssertionError(str(error)) from error
    bare = [
        name
        for name, parameter in named.items()
        if parameter.annotation is parameter.empty and parameter.default is parameter.empty
    ]
    assert not bare, f"annotate {', '.join(bare)}: without a type, text is not converted"


@every
def check_defaults_can_be_written(part: Part) -> None:
    """Each default, written into a spec, is the same value again."""
    for name, parameter in part.parameters.items():
        annotation = convert.annotation_of(parameter)
        default = parameter.default
        if default is parameter.empty or not convert.is_data(annotation):
            continue
        written = f"x:{name}={text(default)}"
        again = convert.convert(
            parse(written).kwargs[name], annotation, name, lambda _, spec: parse(str(spec))
        )
        assert again == default or isinstance(default, Spec), (
            f"the default of {name}, written as {written[2:]}, is read as {again!r}: give it an"
            " annotation from which it can be read"
        )


@every
def check_the_docstring_tells_every_parameter(part: Part) -> None:
    """A first line, and a line under ``Args:`` for each parameter."""
    shown = describe(part.kind, part.spec.name, dict(part.spec.kwargs))
    assert shown.summary, "write a docstring: its first line is the summary in `dmltk list`"
    silent = [one.name for one in shown.parameters if not one.meaning]
    assert not silent, f"say under Args: what {', '.join(silent)} mean"


@only(*METHODS)
def check_the_docstring_names_a_source(part: Part) -> None:
    """``Source: …``: the paper, or who else it is from."""
    shown = describe(part.kind, part.spec.name, dict(part.spec.kwargs))
    assert shown.source, "end the docstring with a line `Source: …`: the paper it is from, or you"


@every
def check_the_process_is_left_alone(part: Part) -> None:
    """Neither building nor using it moves global random states or switches of torch."""
    use(part)  # what it imports may set up what it likes
    before = _process()
    use(part)
    after = _process()
    for what, value in before.items():
        assert _same(value, after[what]), (
            f"it changes {what}: draw from the generator that is given, and put back what you set"
        )


@every
def check_the_same_twice(part: Part) -> None:
    """Built and used twice, it gives the same bits."""
    first, second = use(part), use(part)
    assert _same(first, second), (
        "twice the same input and seed give different results: draw from the generator given"
    )


@every
def check_deterministic_algorithms_are_enough(part: Part) -> None:
    """It works under ``torch.use_deterministic_algorithms``."""
    was, warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    try:
        use(part)
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)


@only(*TRAVELLING)
def check_it_can_be_copied_and_pickled(part: Part) -> None:
    """It travels to worker processes, and a copy is of its class."""
    built = part.build()
    for way, made in (
        ("copied", copy.deepcopy(built)),
        ("pickled", pickle.loads(pickle.dumps(built))),
    ):
        assert type(made) is type(built), f"{way}, it becomes a {type(made).__name__}"


def _process() -> dict[str, Any]:
    state = np.random.get_state(legacy=False)
    return {
        "torch's random state": torch.get_rng_state(),
        "Python's random state": random.getstate(),
        "numpy's random state": state["state"],
        "the grad mode": torch.is_grad_enabled(),
        "the default type": torch.get_default_dtype(),
        "the number of threads": torch.get_num_threads(),
        "cuDNN's switches": (
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.enabled,
        ),
        "the filters of warnings": list(warnings.filters),
    }


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor):
        return one.shape == two.shape and bool(torch.equal(one.nan_to_num(), two.nan_to_num()))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    return bool(one == two)
