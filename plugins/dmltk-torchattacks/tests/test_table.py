"""The table holds every class of the installed torchattacks, with the arguments it has there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torchattacks
from dmltk import registry
from dmltk.errors import UserError
from dmltk_torchattacks import library
from dmltk_torchattacks.table import TABLE

USABLE = [name for name, row in TABLE.items() if row.way != "refused"]
REFUSED = [name for name, row in TABLE.items() if row.way == "refused"]
README = Path(__file__).parent.parent / "README.md"
FACTORY = registry.factory("attacks", "torchattacks")


def classes() -> list[str]:
    """Every attack that torchattacks exports, found without its own list."""
    base = torchattacks.attack.Attack
    found = vars(torchattacks).items()
    return [name for name, value in found if inspect.isclass(value) and issubclass(value, base)]


@pytest.mark.parametrize("name", sorted({*classes(), *torchattacks.__all__, *TABLE}))
def test_every_class_of_the_library_has_a_row_and_every_row_a_class(name):
    assert name in TABLE, f"torchattacks has a class that the table lacks: {name}"
    assert hasattr(torchattacks, name), f"torchattacks has no such class any more: {name}"


@pytest.mark.parametrize("name", USABLE)
def test_arguments_and_defaults_are_those_of_the_class(name):
    theirs = dict(inspect.signature(getattr(torchattacks, name)).parameters)
    ours = FACTORY.signature_for({"name": name}).parameters
    for hidden in ("model", "seed", "verbose", "batch_max", "norm"):
        theirs.pop(hidden, None)
    if TABLE[name].way == "callable":
        theirs.pop("loss")
    for parameter in theirs.values():
        known = "eps" if parameter.name == "max_epsilon" else parameter.name
        assert ours[known].default == parameter.default
    assert ("norm" in ours) == ("norm" in inspect.signature(getattr(torchattacks, name)).parameters)


@pytest.mark.parametrize("name", USABLE)
def test_the_defaults_written_as_text_are_taken_and_are_the_defaults(name):
    parameters = FACTORY.signature_for({"name": name}).parameters
    words = {
        key: str(parameter.default) if not isinstance(parameter.default, tuple) else ["2", "10"]
        for key, parameter in parameters.items()
        if key not in ("name", "goal", "quantize")
    }
    attack = registry.build("attacks", "torchattacks", name=name, **words)
    for key, value in attack.solver.arguments.items():
        assert value == parameters[key].default, key
        assert isinstance(value, type(parameters[key].default) | float), key


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_class_says_why(name):
    with pytest.raises(UserError, match=TABLE[name].reason[:20]):
        registry.build("attacks", f"torchattacks:{name}")


@pytest.mark.parametrize("name", USABLE)
def test_random_starts_are_known(name):
    """A class marked as starting at the clean pictures has no argument that says otherwise."""
    cls, row = library.find(name)
    assert not (row.at_clean and library.takes(cls, "random_start"))


def test_arguments_have_meanings_of_the_library():
    annotation = FACTORY.signature_for({"name": "PGD"}).parameters["alpha"].annotation
    assert annotation.__metadata__[0].description == "step size."


@pytest.mark.parametrize("name", TABLE)
def test_the_readme_and_the_docstring_name_every_class(name):
    table = re.search(r"\| class \| way \|.*?\n\n", README.read_text("utf-8"), re.S)[0]
    assert re.search(rf"\b{name}\b", table)
    written = (Path(library.__file__).parent / "factory.py").read_text("utf-8")
    assert TABLE[name].way == "refused" or re.search(rf"\b{name}\b", written)


@pytest.mark.parametrize("name", USABLE)
def test_an_attack_says_whether_it_is_exact(name):
    solver = registry.build("attacks", "torchattacks", name=name).solver
    assert solver.exact == (TABLE[name].way in ("exact", "callable"))
    assert solver.gradient_free == TABLE[name].gradient_free
