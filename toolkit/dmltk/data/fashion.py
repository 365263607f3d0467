"""Fashion-MNIST: ten kinds of clothes in grey, 28 by 28 pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from dmltk.cache import cache_dir
from dmltk.data.classification import paired, same_classes
from dmltk.data.fetch import apt_download, member, staged, verify
from dmltk.data.published import Bytes, Published, gunzip, read, within
from dmltk.data.split import Dataset
from dmltk.errors import DmltkError, UserError

OWN = 28
NAMES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
PACKAGE, VERSION = "dataset-fashion-mnist", "0.0~git20200523.55506a9-1"
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Of the unpacked files: how they are compressed differs from packager to packager."""
FASHION = Published(
    "Fashion-MNIST",
    tuple(SHA256),
    folder="FashionMNIST/raw",
    archive=PACKAGE,
    page="Debian, or https://github.com/zalandoresearch/fashion-mnist",
    pictures=(60_000, 10_000),
    licence="MIT",
    credit="H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, 2017; copyright 2017 Zalando SE",
)


def fashion_mnist(
    path: str = "",
    *,
    size: Annotated[int, Meta(ge=8)] = OWN,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    limit: Annotated[int, Meta(ge=0)] = 0,
    seed: Annotated[int, Meta(ge=0)] = 0,
) -> Dataset:
    """Fashion-MNIST: 60,000 grey pictures of 10 kinds of clothes train, 10,000 more test.

    Read from the cache, where `dmltk data get fashion-mnist` puts it, or from a folder of its
    four files (those of MNIST bear the same names). Training and test show the same classes,
    numbered as the authors do: so `val` takes pictures of every class, where other data sets
    keep whole classes apart.

    Args:
        path: the folder of the four files, compressed or not; empty for the cache.
        size: height and width in pixels; other than 28 the pictures are resized when read.
        val: share of each training class's pictures (not of the classes) kept for validation.
        limit: only the first so many pictures of each class, in training and test; 0 for all.
        seed: of the draw of the validation pictures.

    Raises:
        UserError: it was not fetched yet, files are missing or broken, or classes have too few
            pictures.

    Source: Xiao et al. 2017, Fashion-MNIST: a Novel Image Dataset for Benchmarking
    """
    root = place()
    if not path and not root.is_dir():
        raise UserError(
            f"Fashion-MNIST is not in {root.parent}; fetch it: dmltk data get fashion-mnist, "
            f"or give its folder: fashion-mnist:FOLDER"
        )
    where = path or str(root)
    train, test = paired(read(where, FASHION, idx), where, FASHION)
    return same_classes(train, test, NAMES, FASHION, size=size, val=val, limit=limit, seed=seed)


def get(report: Callable[[str], None]) -> Path:
    """Fetch Debian's package (31 MB) and put its four files into the cache.

    Args:
        report: told what is being done, a line at a time.

    Returns:
        The folder of the files.

    Raises:
        UserError: apt-get or dpkg-deb is not installed.
        DmltkError: the package cannot be fetched or does not hold the expected files.
    """
    target = place()
    with staged(target) as folder:
        report(f"fetching {PACKAGE} {VERSION}")
        packed = apt_download(PACKAGE, VERSION, folder)
        kept = folder / target.name
        kept.mkdir()
        for name, sha256 in SHA256.items():
            content = member(packed, f"./usr/share/datasets/fashion-mnist/{name}.gz")
            try:
                verify(gunzip(content), sha256, f"{name} of {PACKAGE} {VERSION}")
            except ValueError as error:
                raise DmltkError(f"{name}.gz of {PACKAGE} {VERSION} is broken: {error}") from None
            (kept / f"{name}.gz").write_bytes(content)
        copyright_ = member(packed, f"./usr/share/doc/{PACKAGE}/copyright")
        (kept / "copyright").write_bytes(copyright_)
    report(f"kept in {target}")
    return target


def place() -> Path:
    """Where the files are kept."""
    return cache_dir() / "data" / "fashion-mnist"


def idx(file: str, content: bytes) -> Bytes:
    """Pictures (n, 1, 28, 28) or labels (n,) of an IDX file.

    Its header is 0, 0, 8 (bytes), the number of dimensions, and each dimension, big-endian.

    Raises:
        ValueError: another header, another length than it says, or a label is too large.
    """
    shape = (OWN, OWN) if "images" in file else ()
    start = 8 + 4 * len(shape)
    head = content[:start].ljust(start, b"\0")
    magic, count, *rest = np.frombuffer(head, dtype=">u4").tolist()
    if magic != 0x801 + len(shape) or tuple(rest) != shape:
        raise ValueError("its header is not that of an IDX file of this kind")
    if not count or len(content) - start != count * math.prod(shape):
        raise ValueError(f"{len(content) - start:,} bytes do not make the {count:,} it speaks of")
    found = np.frombuffer(content, dtype=np.uint8, offset=start)
    return found.reshape(-1, 1, OWN, OWN) if shape else within(found, range(10))
