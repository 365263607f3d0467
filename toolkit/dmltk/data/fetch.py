"""Fetching packages by name through pip, npm and apt; nothing in them is ever run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dmltk.errors import DmltkError, UserError

STALE = 24 * 3600.0


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """An empty folder beside `target`, to be filled; its `target.name` becomes `target` at the end.

    What is killed half-way leaves `target` as it was; remains older than a day are swept up.

    Args:
        target: file or folder that the body makes as `folder / target.name`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}-"
    for old in target.parent.glob(f"{prefix}*"):
        if time.time() - old.stat().st_mtime > STALE:
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as name:
        folder = Path(name)
        yield folder
        if target.is_dir():
            os.replace(target, folder / "replaced")
        os.replace(folder / target.name, target)


def npm_pack(package: str, version: str, sha256: str, folder: Path) -> Path:
    """Fetch an npm package's archive into `folder` and check it.

    Raises:
        UserError: npm is not installed.
        DmltkError: npm failed, or the archive is not the expected one.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            f"npm is needed to fetch {package} and is not installed; install Node.js, "
            f"for example with 'apt-get install npm'"
        )
    place = Path(tempfile.mkdtemp(dir=folder))
    run([npm, "pack", "--ignore-scripts", f"{package}@{version}"], place, package)
    archive = only(place, "*.tgz", package)
    verify(archive.read_bytes(), sha256, f"{package} {version}")
    return archive


def pip_download(package: str, version: str, folder: Path) -> Path:
    """Fetch a Python package's wheel into `folder`; a source archive is never taken.

    Raises:
        DmltkError: pip failed.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    run([*command, "--dest", str(place), f"{package}=={version}"], place, package)
    return only(place, "*.whl", package)


def apt_download(package: str, version: str, folder: Path) -> Path:
    """Fetch a Debian package into `folder`, and take its files out as a tar archive.

    Nothing is installed. apt checks the package against the signed lists of the archive.

    Raises:
        UserError: apt-get or dpkg-deb is not installed.
        DmltkError: either of them failed.
    """
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise UserError(
            f"apt-get and dpkg-deb are needed to fetch {package}, and are part of Debian; "
            f"elsewhere take the files from a Debian mirror's {package}_{version}_all.deb"
        )
    place = Path(tempfile.mkdtemp(dir=folder))
    run([apt, "download", f"{package}={version}"], place, package)
    archive = only(place, "*.deb", package)
    files = archive.with_suffix(".tar")
    with files.open("wb") as out:
        done = subprocess.run([dpkg, "--fsys-tarfile", str(archive)], stdout=out, check=False)
    if done.returncode:
        raise DmltkError(f"dpkg-deb could not read {archive.name}: exit status {done.returncode}")
    return files


def run(command: Sequence[str], folder: Path, package: str) -> None:
    """Run a client in `folder`; its last line of complaint becomes the error."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()] or said
        reason = errors[-1] if errors else f"exit status {done.returncode}"
        client = "pip" if command[0] == sys.executable else Path(command[0]).stem
        raise DmltkError(f"{client} could not fetch {package}: {reason}")


def only(folder: Path, pattern: str, package: str) -> Path:
    """The single file of this pattern that a client left behind."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DmltkError(f"{len(found)} archives arrived for {package} where one was expected")
    return found[0]


def verify(content: bytes, sha256: str, what: str) -> None:
    """Refuse content whose sha256 is another one."""
    seen = hashlib.sha256(content).hexdigest()
    if seen != sha256:
        raise DmltkError(
            f"{what} is not the expected file (sha256 {seen[:16]}, expected {sha256[:16]}); "
            f"nothing was kept, try again later"
        )


def member(archive: Path, name: str) -> bytes:
    """One file out of a wheel, a .tgz or a .tar, read by its name; nothing is unpacked.

    Raises:
        DmltkError: the archive cannot be read or has no such file.
    """
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as packed:
                return packed.read(name)
        with tarfile.open(archive) as packed_tar:
            file = packed_tar.extractfile(name)
            if file is None:
                raise KeyError(name)
            return file.read()
    except (KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DmltkError(f"{archive.name} holds no readable '{name}': {error}") from error
