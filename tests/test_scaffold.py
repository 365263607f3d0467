"""``dmltk new plugin``: what it writes works and conforms, for every kind."""

from __future__ import annotations

import configparser
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dmltk import registry
from dmltk.__main__ import main
from dmltk.errors import UserError
from dmltk.scaffold import write
from dmltk.testing import check

from .distributions import answer, install

KINDS = [registry.singular(kind) for kind in registry.KINDS]


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    yield
    for kind in registry.KINDS:
        known = registry.entries(kind)
        known[:] = [entry for entry in known if entry.distribution != registry.SESSION]


def points(folder: Path) -> dict[str, str]:
    """The entry points that a distribution's setup.cfg names, by group."""
    config = configparser.ConfigParser()
    config.read(folder / "setup.cfg")
    return {k: v.strip() for k, v in config["options.entry_points"].items()}


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_part_of_every_kind_conforms(tmp_path: Path, kind: str) -> None:
    folder = write("my-thing", kind, tmp_path)
    assert folder == tmp_path / "dmltk-my-thing"
    (point,) = points(folder).values()
    name, target = point.split(" = ")
    module, attribute = target.split(":")
    source = folder / "src" / module / "__init__.py"
    spec = importlib.util.spec_from_file_location(f"{module}_{kind}", source)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    registry.register(kind, name, getattr(made, attribute))
    failed = [one for one in check(kind, name) if one.status == "failed"]
    assert not failed, "\n".join(f"{one.check}: {one.message}\n{one.trace}" for one in failed)
    assert "example" not in source.read_text().lower()
    test = (folder / "tests" / "test_my_thing.py").read_text()
    assert f'["{kind}:my-thing"]' in test and len(test.strip().splitlines()) <= 6


def test_installed_they_stand_in_the_list(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for kind in KINDS:
        folder = write(f"my-{kind}", kind, tmp_path)
        ((group, point),) = points(folder).items()
        module = f"dmltk_my_{kind}"
        source = (folder / "src" / module / "__init__.py").read_text()
        install(site, folder.name, {f"{module}.py": source}, {group: point})
    code = """
import json
from dmltk import registry
from dmltk.description import describe
print(json.dumps([
    [e.full_name, e.version, e.state, describe(k, e.name).summary]
    for k in registry.KINDS for e in registry.entries(k) if e.distribution.startswith("dmltk-my-")
]))
"""
    found = answer(code, site)
    assert [row[0] for row in found] == [f"dmltk-my-{kind}/my-{kind}" for kind in KINDS]
    assert all(row[1:3] == ["0.2", "ok"] or row[2] == "loaded" for row in found)
    assert all(row[3] for row in found), json.dumps(found)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("stax", "attack", "attack 'stax' is built in"),
        ("My Thing", "attack", "cannot be registered"),
        ("thing", "attak", "did you mean 'attack'"),
        ("../thing", "attack", "cannot be registered"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str, kind: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        write(name, kind, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    write("thing", "attack", tmp_path)
    with pytest.raises(UserError, match="exists: choose another name"):
        write("dmltk-thing", "loss", tmp_path)


def test_the_command_says_how_to_try_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["new", "plugin", "thing", "--kind", "metrics", "--out", str(tmp_path)])
    assert not left.value.code
    assert f"pip install -e '{tmp_path / 'dmltk-thing'}[test]'" in capsys.readouterr().out
