"""The registry: discovery, identity, isolation of the broken, and building with context."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Annotated

import dmltk
import msgspec
import pytest
from dmltk import registry
from dmltk.description import describe
from dmltk.errors import DmltkError, PluginError, UserError
from dmltk.source import summary

from .distributions import answer, install, python

GOOD = '''
def mine(*, steps: int = 3):
    """My own solver."""
    return ("mine", steps)

def from_tomorrow():
    """Needs a later dmltk."""

from_tomorrow.dmltk_api = 99
'''
LISTED = """
import json
from dmltk import registry
print(json.dumps({e.full_name: e.state for e in registry.entries("solvers")}))
"""
TRIED = """
import json
from dmltk import registry
def tried(name):
    try:
        return registry.build("solvers", name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(json.dumps({name: tried(name) for name in %r}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three distributions: a good one, one that claims its names, one that cannot be imported."""
    site = tmp_path_factory.mktemp("plugins") / "site"
    points = "mine = acme_one:mine\npgd = acme_one:mine\nBad Name = acme_one:mine"
    late = "\nlate = acme_one:from_tomorrow"
    install(site, "acme-one", {"acme_one.py": GOOD}, {"dmltk.solvers": points + late})
    two = GOOD.replace('"mine", steps', '"two", steps')
    install(site, "acme-two", {"acme_two.py": two}, {"dmltk.solvers": "mine = acme_two:mine"})
    broken = {"acme_broken.py": "import no_such_module\n"}
    install(site, "acme-broken", broken, {"dmltk.solvers": "broken = acme_broken:it"})
    return site


def test_every_plug_in_is_listed_with_its_state(site: Path) -> None:
    states = answer(LISTED, site)
    assert states["dmltk/pgd"] == "ok"
    assert states["acme-one/mine"] == states["acme-two/mine"] == "conflict"
    assert states["acme-one/pgd"] == "conflict"
    assert states["acme-one/Bad Name"] == "invalid name"
    assert states["acme-broken/broken"] == "ok"


def test_a_broken_plug_in_stops_nobody_and_is_told_when_used(site: Path) -> None:
    names = ["broken", "acme-one/mine:steps=5", "acme-two/mine", "mine", "late"]
    said = answer(TRIED % names, site)
    assert said["acme-one/mine:steps=5"] == ["mine", 5]
    assert said["acme-two/mine"] == ["two", 3]
    assert "PluginError" in said["broken"] and "no_such_module" in said["broken"]
    assert "'acme-one/mine' or 'acme-two/mine'" in said["mine"]
    assert "needs plug-in API 99" in said["late"]


def test_built_ins_keep_their_name(site: Path) -> None:
    code = "from dmltk import registry; print(registry.resolve('solvers', 'pgd').distribution)"
    assert python(code, site).stdout.strip() == "dmltk"


def test_plug_ins_can_be_switched_off(site: Path) -> None:
    states = answer(LISTED, site, DMLTK_PLUGINS="acme-two")
    assert states["acme-one/mine"] == "disabled"
    assert states["acme-two/mine"] == "ok"
    said = answer(TRIED % ["mine", "broken"], site, DMLTK_PLUGINS="acme-two")
    assert said["mine"] == ["two", 3]
    assert "switched off by DMLTK_PLUGINS" in said["broken"]
    assert answer(LISTED, site, DMLTK_PLUGINS="none")["acme-two/mine"] == "disabled"


def test_a_summary_needs_no_import(site: Path) -> None:
    code = """
import json, sys
from dmltk import registry
from dmltk.source import summary
said = {e.full_name: summary(e) for e in registry.entries("solvers")}
print(json.dumps([said, [m for m in ("acme_one", "acme_broken", "torch") if m in sys.modules]]))
"""
    said, imported = answer(code, site)
    assert said["acme-one/mine"] == "My own solver."
    assert said["acme-broken/broken"] == "of acme-broken"
    assert imported == []


def test_an_idea_is_tried_without_packaging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "solvers.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert dmltk.build("solver", "ideas.solvers:mine,steps=7") == ("mine", 7)
    assert dmltk.build("solver", "ideas.solvers:mine", steps=2) == ("mine", 2)
    with pytest.raises(PluginError, match="cannot be loaded"):
        dmltk.build("solver", "ideas.solvers:absent")


class Part:
    """A part for the tests.

    Args:
        first: the first.
        rate: a rate,
            told in two lines.

    Source: Nobody 2020, eq. 1.
    """

    def __init__(
        self, first: str, *, rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5, eps: float = 0
    ) -> None:
        self.first, self.rate, self.eps = first, rate, eps


@pytest.fixture
def part() -> str:
    registry.register("augments", "part", Part)
    return "part"


def test_context_is_passed_where_asked_for_and_loses_to_the_spec(part: str) -> None:
    offered = {"eps": 0.25, "device": "cpu"}
    assert dmltk.build("augments", "part:x", context=offered).eps == 0.25
    assert dmltk.build("augments", "part:x,eps=1/2", context=offered).eps == 0.5
    assert dmltk.build("augment", "part:x", rate="1/4").rate == 0.25


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("part", "needs first"),
        ("part:x,rat=1", "unknown argument 'rat' in augment 'part'; did you mean 'rate'"),
        ("part:x,rate=2", r"rate=2: expected float <= 1"),
        ("part:x,first=y", "given twice"),
        ("prt:x", "unknown augment 'prt'; did you mean 'part'"),
    ],
)
def test_wrong_specs_are_refused_in_one_sentence(part: str, spec: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        dmltk.build("augments", spec)


def test_unknown_context_is_no_argument(part: str) -> None:
    with pytest.raises(UserError, match="unknown argument 'device'"):
        dmltk.build("augments", "part:x", device="cpu")
    with pytest.raises(UserError, match="given twice, in the spec and as an argument"):
        dmltk.build("augments", "part:x,rate=.1", rate=0.2)


def test_a_factory_that_fails_is_told_with_its_name(part: str) -> None:
    def failing(*, size: int = 0) -> None:
        raise ZeroDivisionError("no")

    registry.register("augments", "failing", failing)
    with pytest.raises(DmltkError, match="augment 'failing' cannot be built: ZeroDivisionError"):
        dmltk.build("augments", "failing")


def test_var_arguments_are_refused() -> None:
    registry.register("augments", "loose", lambda **kwargs: kwargs)
    with pytest.raises(PluginError, match=r"\*\*kwargs"):
        dmltk.build("augments", "loose")


def test_a_part_of_another_distribution_of_this_project_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "entries", lambda kind: [])
    with pytest.raises(UserError, match="model 'onnx' comes with dmltk-onnx: run pip install dml"):
        registry.build("model", "onnx:file.onnx")
    with pytest.raises(UserError, match="unknown attack 'onnx'"):
        registry.build("attack", "onnx")


def test_built_in_names_cannot_be_taken() -> None:
    with pytest.raises(UserError, match="is built in"):
        registry.register("solver", "pgd", Part)
    with pytest.raises(UserError, match="cannot be registered"):
        registry.register("solver", "Bad Name", Part)


def test_a_description_gives_type_default_range_meaning_and_source(part: str) -> None:
    found = describe("augment", "part")
    assert found.summary == "A part for the tests."
    assert found.source == "Nobody 2020, eq. 1."
    rate = {p.name: p for p in found.parameters}["rate"]
    assert (rate.type, rate.default, rate.range) == ("float", "0.5", "≥ 0, ≤ 1")
    assert rate.meaning == "a rate, told in two lines."
    assert {p.name: p.default for p in found.parameters}["first"] == "required"


def built_ins() -> list[tuple[str, str]]:
    config = configparser.ConfigParser(delimiters=("=",))
    config.read(Path(__file__).parent.parent / "setup.cfg", "utf-8")
    points = config["options.entry_points"]
    return [
        (group.removeprefix("dmltk."), line.partition("=")[0].strip())
        for group in points
        if group.startswith("dmltk.")
        for line in points[group].strip().splitlines()
    ]


def test_the_installed_entry_points_are_those_of_setup_cfg() -> None:
    installed = {(k, e.name) for k in registry.KINDS for e in registry.entries(k) if e.target}
    assert {pair for pair in installed if pair in built_ins()} == set(built_ins())


@pytest.mark.parametrize(("kind", "name"), built_ins())
def test_every_built_in_can_be_described(kind: str, name: str) -> None:
    found = describe(kind, name)
    assert found.summary and not found.summary.startswith("Attacks, defences and")
    assert found.summary == summary(registry.resolve(kind, name))
    for parameter in found.parameters:
        assert parameter.type not in ("", "_empty")


def test_kinds_go_by_singular_and_plural() -> None:
    for kind in registry.KINDS:
        assert registry.plural(registry.singular(kind)) == registry.plural(kind) == kind
    with pytest.raises(UserError, match="did you mean 'loss"):
        registry.plural("lossses")
