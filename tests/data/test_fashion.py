"""Fashion-MNIST out of Debian's package, through a stand-in for apt, and the real one."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from dmltk.cache import cache_dir
from dmltk.data import build, fashion
from dmltk.data.fetch import apt_download
from dmltk.errors import DmltkError, UserError

from . import official

FETCHED = cache_dir() / "data" / "fashion-mnist"


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for apt-get and dpkg-deb: the package is the archive of files that is returned."""
    official.fashion(tmp_path / "files")
    package = tmp_path / "package.tar"
    with tarfile.open(package, "w") as packed:
        for file in (tmp_path / "files").iterdir():
            packed.add(file, f"./usr/share/datasets/fashion-mnist/{file.name}")
        entry = tarfile.TarInfo("./usr/share/doc/dataset-fashion-mnist/copyright")
        entry.size = 5
        packed.addfile(entry, io.BytesIO(b"Expat"))
    bodies = {
        "apt-get": f"import shutil; open('args', 'w').write(' '.join(sys.argv[1:]))\n"
        f"shutil.copy({str(package)!r}, 'p_1_all.deb')",
        "dpkg-deb": "assert sys.argv[1] == '--fsys-tarfile'\n"
        "sys.stdout.buffer.write(open(sys.argv[2], 'rb').read())",
    }
    for name, body in bodies.items():
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    hashes = {
        file.stem: hashlib.sha256(gzip.decompress(file.read_bytes())).hexdigest()
        for file in (tmp_path / "files").iterdir()
    }
    monkeypatch.setattr(fashion, "SHA256", hashes)
    return package


def test_what_was_got_is_the_data_set(cache: Path, debian: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    assert fashion.get(lines.append) == cache / "data" / "fashion-mnist"
    assert lines[0] == f"fetching dataset-fashion-mnist {fashion.VERSION}"
    assert (cache / "data" / "fashion-mnist" / "copyright").read_bytes() == b"Expat"
    data = build("fashion-mnist")
    assert data.card == build(f"fashion-mnist:{tmp_path / 'files'}").card
    assert data.card["pictures"] == {"train": 30, "test": 20}
    assert fashion.get(lines.append).is_dir()


def test_apt_is_asked_for_one_version(debian: Path, tmp_path: Path) -> None:
    files = apt_download("p", "1", tmp_path)
    assert (files.parent / "args").read_text() == "download p=1"
    assert files.read_bytes() == debian.read_bytes()


@pytest.mark.parametrize("content", [gzip.compress(b"other"), b"no gzip"], ids=["other", "broken"])
def test_another_file_leaves_nothing_in_the_cache(
    content: bytes, cache: Path, debian: Path, tmp_path: Path
) -> None:
    (tmp_path / "changed").write_bytes(content)
    with tarfile.open(debian, "a") as packed:
        name = "t10k-labels-idx1-ubyte.gz"
        packed.add(tmp_path / "changed", f"./usr/share/datasets/fashion-mnist/{name}")
    with pytest.raises(DmltkError, match=r"t10k-labels-idx1-ubyte.* (not the expected|broken)"):
        fashion.get(lambda _: None)
    assert list((cache / "data").iterdir()) == []


def test_what_apt_and_dpkg_say_is_told(debian: Path, tmp_path: Path) -> None:
    for name, told in (("dpkg-deb", "could not read p_1_all.deb"), ("apt-get", "E: no such p")):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho 'E: no such p' >&2\nexit 100\n")
        with pytest.raises(DmltkError, match=told):
            apt_download("p", "1", tmp_path)


def test_without_apt_it_is_told_what_to_do(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"Debian mirror's p_1_all\.deb"):
        apt_download("p", "1", tmp_path)


def test_without_its_files_it_names_the_command(cache: Path) -> None:
    with pytest.raises(UserError, match="dmltk data get fashion-mnist"):
        build("fashion-mnist")


def test_four_pinned_files_carry_a_full_hash() -> None:
    assert tuple(fashion.SHA256) == fashion.FASHION.files
    assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in fashion.SHA256.values())


@pytest.mark.skipif(not FETCHED.is_dir(), reason="dmltk data get fashion-mnist")
def test_the_real_one_is_whole_and_balanced() -> None:
    data = build(f"fashion-mnist:{FETCHED}")
    assert data.card["complete"] is True
    assert data.train.labels.bincount().tolist() == [6000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    assert data.train.labels[:8].tolist() == [9, 0, 0, 3, 0, 2, 7, 2]
    pixels = data.train.pictures.read(range(2000))[:, 0].flatten(1).float() / 255
    queries = data.test.pictures.read(range(500))[:, 0].flatten(1).float() / 255
    nearest = data.train.labels[torch.cdist(queries, pixels).argmin(1)]
    assert 0.7 < float((nearest == data.test.labels[:500]).float().mean()) < 0.85
