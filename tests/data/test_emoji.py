from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from dmltk.data import emoji as module
from dmltk.data.emoji import DESIGNS, Design, drawings, emoji, get, shared
from dmltk.data.split import load
from dmltk.errors import DmltkError, UserError

NAMES = ["red-heart", "cat", "dog", "flag-france", "crossed-flags", "hand-dark-skin-tone", "rare"]
BODY = '<path fill="{}" d="M0 0h10v10H0z"/>'


def icons(*names: str) -> dict[str, object]:
    found = {name: {"body": BODY.format("#f00")} for name in names}
    return {"prefix": "x", "width": 20, "height": 20, "icons": found}


@pytest.fixture
def designs(tmp_path: Path, client, archive, monkeypatch) -> list[Design]:
    """Three designs behind a fake npm; two classes are left out of the third, one is in one."""
    pytest.importorskip("resvg_py")
    made = []
    for place, names in enumerate((NAMES, NAMES[:-1], [*NAMES[1:-1], "redheart"])):
        content = {"package/icons.json": json.dumps(icons(*names)).encode()}
        path = archive(tmp_path / f"d{place}.tgz", content)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        made.append(Design(f"d{place}", "1.0", sha256, f"L{place}", f"artist {place}"))
    copy = "import shutil; name = args[-1].split('/')[1].split('@')[0]\n"
    client("npm", copy + f"shutil.copy({str(tmp_path)!r} + '/' + name + '.tgz', name + '.tgz')")
    monkeypatch.setattr(module, "DESIGNS", made)
    monkeypatch.setattr(module, "DESIGNS_NEEDED", 3)
    return made


def test_flags_and_skin_tones_are_dropped_and_names_are_joined() -> None:
    found = drawings("d", icons(*NAMES, "../evil", "Ünicode"))
    assert [drawing.name for drawing in found] == ["redheart", "cat", "dog", "rare"]
    assert 'viewBox="0.0 0.0 20.0 20.0"' in found[0].svg


def test_an_icon_may_have_a_box_of_its_own() -> None:
    sets = icons("a", "b")
    sets["icons"]["b"] |= {"left": -2, "width": 36}
    assert 'viewBox="-2.0 0.0 36.0 20.0"' in drawings("d", sets)[1].svg


def test_a_class_needs_enough_designs() -> None:
    drawn = [*drawings("x", icons("b", "a")), *drawings("y", icons("a", "c"))]
    assert [(d.name, d.design) for d in shared(drawn, 2)] == [("a", "x"), ("a", "y")]
    assert len(shared(drawn, 1)) == 4


def test_what_was_got_is_a_data_set(cache: Path, designs: list[Design]) -> None:
    lines: list[str] = []
    assert get(lines.append) == cache / "data" / "emoji"
    assert "drawing 9 pictures" in lines
    data = emoji(size=20)
    assert (data.train.names, data.test.names) == (["cat"], ["dog", "redheart"])
    images, labels, _ = load(data.test, range(6))
    assert images.shape == (6, 3, 20, 20)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images[0, :, 2, 2].tolist() == [1, 0, 0]
    assert images[0, :, 17, 17].tolist() == [1, 1, 1]
    assert data.card["licence"] == "L0, L1, L2"
    assert [credit["credit"] for credit in data.card["credits"]] == [
        design.credit for design in designs
    ]
    index = json.loads((cache / "data" / "emoji" / "index.json").read_text())
    assert {entry["design"] for entry in index["pictures"]} == {"d0", "d1", "d2"}
    assert get(lines.append).is_dir()
    assert emoji(size=20).card == data.card


def test_a_wrong_archive_leaves_nothing_in_the_cache(
    cache: Path, designs: list[Design], tmp_path: Path
) -> None:
    (tmp_path / "d1.tgz").write_bytes(b"other")
    with pytest.raises(DmltkError, match="not the expected file"):
        get(lambda line: None)
    assert list((cache / "data").iterdir()) == []


def test_emoji_that_were_not_fetched_are_told_with_the_command(cache: Path) -> None:
    with pytest.raises(UserError, match="dmltk data get emoji"):
        emoji()


def test_a_missing_drawer_is_told_with_the_command(cache: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'dmltk\[data\]'"):
        get(lambda line: None)


def test_eight_pinned_designs_carry_a_full_hash_a_licence_and_a_credit() -> None:
    assert len({design.name for design in DESIGNS}) == 8
    for design in DESIGNS:
        assert len(bytes.fromhex(design.sha256)) == 32
        assert design.licence
        assert design.credit
    share_alike = {design.name for design in DESIGNS if design.licence.endswith("SA-4.0")}
    assert share_alike == {"openmoji", "emojione-v1"}
