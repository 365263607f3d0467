"""Writes the official files of published data sets, with a few pictures, byte by byte."""

from __future__ import annotations

import gzip
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEN = 10
TRAIN, TEST = 3, 2
"""Pictures of each class."""
FINE = [f"fine_{label}" for label in range(100)]
COARSE = [f"coarse_{label}" for label in range(20)]


@dataclass
class Written:
    """What was written: uint8 pictures (n, channels, height, width) and labels, by part."""

    folder: Path
    train: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def drawn(folder: Path, classes: int, shape: tuple[int, ...]) -> Written:
    """Noise, so that every byte in a wrong place shows; classes in a shuffled order."""
    draws = np.random.default_rng(classes)
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for count in (TRAIN, TEST):
        labels = draws.permutation(np.arange(classes).repeat(count))
        parts += [draws.integers(0, 256, (len(labels), *shape), dtype=np.uint8), labels]
    return Written(folder, *parts)


def cifar10(root: Path) -> Written:
    """Five training files and one for the test."""
    made = drawn(root / "cifar-10-batches-bin", TEN, (3, 32, 32))
    cut = len(made.train) // 5
    for number in range(5):
        rows = slice(number * cut, (number + 1) * cut)
        file = made.folder / f"data_batch_{number + 1}.bin"
        file.write_bytes(cifar_records(made.train[rows], made.train_labels[rows]))
    (made.folder / "test_batch.bin").write_bytes(cifar_records(made.test, made.test_labels))
    return made


def cifar100(root: Path) -> Written:
    """Coarse and fine labels: here the superclass of a class is its number modulo 20."""
    made = drawn(root / "cifar-100-binary", 100, (3, 32, 32))
    for file, pictures, labels in (
        ("train.bin", made.train, made.train_labels),
        ("test.bin", made.test, made.test_labels),
    ):
        (made.folder / file).write_bytes(cifar_records(pictures, labels % 20, labels))
    (made.folder / "fine_label_names.txt").write_text("\n".join(FINE) + "\n\n")
    (made.folder / "coarse_label_names.txt").write_text("\n".join(COARSE) + "\n\n")
    return made


def cifar_records(pictures: NDArray[np.uint8], *labels: NDArray[np.int64]) -> bytes:
    """A record: its labels, then all red values by rows, all green ones, all blue ones."""
    content = bytearray()
    for row, picture in enumerate(pictures):
        content += bytes(int(one[row]) for one in labels)
        for channel in picture:
            for line in channel:
                content += bytes(line.tolist())
    return bytes(content)


def stl10(root: Path) -> Written:
    """Pictures column by column, labels from 1 in files of their own."""
    made = drawn(root / "stl10_binary", TEN, (3, 96, 96))
    for part, pictures, labels in (
        ("train", made.train, made.train_labels),
        ("test", made.test, made.test_labels),
    ):
        content = bytearray()
        for picture in pictures:
            for channel in picture:
                for column in range(96):
                    content += bytes(channel[:, column].tolist())
        (made.folder / f"{part}_X.bin").write_bytes(bytes(content))
        (made.folder / f"{part}_y.bin").write_bytes(bytes(int(one) + 1 for one in labels))
    return made


def fashion(folder: Path, *, packed: bool = True) -> Written:
    """Four IDX files."""
    made = drawn(folder, TEN, (1, 28, 28))
    for part, pictures, labels in (
        ("train", made.train, made.train_labels),
        ("t10k", made.test, made.test_labels),
    ):
        for file, array in (
            (f"{part}-images-idx3-ubyte", pictures[:, 0]),
            (f"{part}-labels-idx1-ubyte", labels),
        ):
            sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
            content = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
            if packed:
                (folder / f"{file}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / file).write_bytes(content)
    return made


def archive(folder: Path, file: Path) -> Path:
    """A compressed tar archive of a folder."""
    with tarfile.open(file, "w:gz") as packed:
        packed.add(folder, folder.name)
    return file
