"""CIFAR-10 and CIFAR-100 from their binary version, which holds no pickles."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from dmltk.data.classification import Labelled, same_classes
from dmltk.data.published import Bytes, Published, read, records, within
from dmltk.data.split import Dataset

OWN = 32
PIXELS = 3 * OWN * OWN
FACTS: dict[str, Any] = {
    "page": "https://www.cs.toronto.edu/~kriz/cifar.html",
    "pictures": (50_000, 10_000),
    "licence": "none stated",
    "credit": "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
}
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEN = Published(
    "CIFAR-10",
    (*BATCHES, "test_batch.bin"),
    "cifar-10-batches-bin",
    "cifar-10-binary.tar.gz",
    pickled=frozenset({"cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1"}),
    **FACTS,
)
COARSE, FINE = "coarse_label_names.txt", "fine_label_names.txt"
HUNDRED = Published(
    "CIFAR-100",
    ("train.bin", "test.bin", COARSE, FINE),
    "cifar-100-binary",
    "cifar-100-binary.tar.gz",
    pickled=frozenset({"cifar-100-python", "cifar-100-python.tar.gz", "meta"}),
    **FACTS,
)


def cifar10(
    path: str,
    *,
    size: Annotated[int, Meta(ge=8)] = OWN,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    limit: Annotated[int, Meta(ge=0)] = 0,
    seed: Annotated[int, Meta(ge=0)] = 0,
) -> Dataset:
    """CIFAR-10, which you bring: 50,000 pictures of 10 classes train, 10,000 more of these test.

    The binary version is read; the one for Python is made of pickles and refused. Training and
    test show the same classes, numbered as the authors do: so `val` takes pictures of every
    class, where other data sets keep whole classes apart. The authors state no licence.

    Args:
        path: cifar-10-binary.tar.gz, the folder that it unpacks to, or the folder of either.
        size: height and width in pixels; other than 32 the pictures are resized when read.
        val: share of each training class's pictures (not of the classes) kept for validation.
        limit: only the first so many pictures of each class, in training and test; 0 for all.
        seed: of the draw of the validation pictures.

    Raises:
        UserError: files are missing, broken or pickles, or classes have too few pictures.

    Source: Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images
    """
    found = read(path, TEN, lambda _, content: labelled(content, 10))
    train = np.concatenate([found[name] for name in BATCHES])
    return same_classes(
        part(train, 0, 1),
        part(found["test_batch.bin"], 0, 1),
        NAMES,
        TEN,
        size=size,
        val=val,
        limit=limit,
        seed=seed,
    )


def cifar100(
    path: str,
    *,
    coarse: bool = False,
    size: Annotated[int, Meta(ge=8)] = OWN,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    limit: Annotated[int, Meta(ge=0)] = 0,
    seed: Annotated[int, Meta(ge=0)] = 0,
) -> Dataset:
    """CIFAR-100, which you bring: 50,000 pictures of 100 classes train, 10,000 more of these test.

    The binary version is read; the one for Python is made of pickles and refused. Training and
    test show the same classes, numbered as the authors do: so `val` takes pictures of every
    class, where other data sets keep whole classes apart. The authors state no licence.

    Args:
        path: cifar-100-binary.tar.gz, the folder that it unpacks to, or the folder of either.
        coarse: take the 20 superclasses for the classes.
        size: height and width in pixels; other than 32 the pictures are resized when read.
        val: share of each training class's pictures (not of the classes) kept for validation.
        limit: only the first so many pictures of each class, in training and test; 0 for all.
        seed: of the draw of the validation pictures.

    Raises:
        UserError: files are missing, broken or pickles, or classes have too few pictures.

    Source: Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images
    """
    found = read(path, HUNDRED, hundred)
    byte = 0 if coarse else 1
    return same_classes(
        part(found["train.bin"], byte, 2),
        part(found["test.bin"], byte, 2),
        found[COARSE if coarse else FINE],
        HUNDRED,
        size=size,
        val=val,
        limit=limit,
        seed=seed,
    )


def hundred(file: str, content: bytes) -> Any:
    """The records or the class names of a file of CIFAR-100."""
    if file == COARSE:
        return listed(content, 20)
    return listed(content, 100) if file == FINE else labelled(content, 20, 100)


def labelled(content: bytes, *classes: int) -> Bytes:
    """The records of a file, (n, labels + 3072): the labels, then red, green and blue by rows.

    Args:
        content: of the file.
        classes: how many there are for each label of a record.

    Raises:
        ValueError: it is cut short, or a label is too large.
    """
    found = records(content, len(classes) + PIXELS)
    for byte, count in enumerate(classes):
        within(found[:, byte], range(count))
    return found


def listed(content: bytes, count: int) -> list[str]:
    """The class names of a file, one a line.

    Raises:
        ValueError: there are not `count` different ones.
    """
    names = content.decode("utf-8").split()
    if not len(names) == len(set(names)) == count:
        raise ValueError(f"{len(set(names))} different class names, not {count}")
    return names


def part(found: Bytes, byte: int, start: int) -> Labelled:
    """Records as pictures and labels.

    Args:
        found: (n, start + 3072).
        byte: which one of a record is the label.
        start: the byte at which the pixels begin.
    """
    return Labelled.of(found[:, start:].reshape(-1, 3, OWN, OWN), found[:, byte])
