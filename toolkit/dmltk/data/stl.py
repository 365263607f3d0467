"""STL-10 from its binary files."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dmltk.data.classification import paired, same_classes
from dmltk.data.published import Bytes, Published, read, records, within
from dmltk.data.split import Dataset

OWN = 96
PIXELS = 3 * OWN * OWN
NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
STL = Published(
    "STL-10",
    ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"),
    "stl10_binary",
    "stl10_binary.tar.gz",
    page="https://cs.stanford.edu/~acoates/stl10/",
    pictures=(5_000, 8_000),
    licence="none stated",
    credit="A. Coates, H. Lee and A. Y. Ng, An Analysis of Single-Layer Networks in Unsupervised "
    "Feature Learning, 2011; pictures of ImageNet",
)


def stl10(
    path: str,
    *,
    size: Annotated[int, Meta(ge=8)] = OWN,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    limit: Annotated[int, Meta(ge=0)] = 0,
    seed: Annotated[int, Meta(ge=0)] = 0,
) -> Dataset:
    """STL-10, which you bring: 5,000 pictures of 10 classes train, 8,000 more of these test.

    The 100,000 pictures without labels are not read: here every picture has a label. Training and
    test show the same classes, in the authors' order: so `val` takes pictures of every class,
    where other data sets keep whole classes apart. The authors state no licence.

    Args:
        path: stl10_binary.tar.gz, the folder that it unpacks to, or the folder of either.
        size: height and width in pixels; other than 96 the pictures are resized when read.
        val: share of each training class's pictures (not of the classes) kept for validation.
        limit: only the first so many pictures of each class, in training and test; 0 for all.
        seed: of the draw of the validation pictures.

    Raises:
        UserError: files are missing or broken, or classes have too few pictures.

    Source: Coates et al. 2011, An Analysis of Single-Layer Networks in Unsupervised Feature
    Learning
    """
    train, test = paired(read(path, STL, parse), path, STL)
    return same_classes(train, test, NAMES, STL, size=size, val=val, limit=limit, seed=seed)


def parse(file: str, content: bytes) -> Bytes:
    """Pictures (n, 3, 96, 96), which a file holds column by column, or labels from 0, there from 1.

    Raises:
        ValueError: the file is cut short, or a label is none.
    """
    if file.endswith("_X.bin"):
        return records(content, PIXELS).reshape(-1, 3, OWN, OWN).swapaxes(2, 3)
    return within(records(content, 1)[:, 0], range(1, 11)) - 1
