"""CIFAR, STL-10 and Fashion-MNIST: every byte of small files of the true form; torchvision."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dmltk.data import build
from dmltk.data.cifar import NAMES as CIFAR_NAMES
from dmltk.data.fashion import NAMES as FASHION_NAMES
from dmltk.data.split import Dataset
from dmltk.data.stl import NAMES as STL_NAMES
from dmltk.errors import UserError
from torchvision import datasets as twins
from torchvision.transforms.v2 import functional

from . import official
from .official import Written

WRITERS: dict[str, Callable[[Path], Written]] = {
    "cifar10": official.cifar10,
    "cifar100": official.cifar100,
    "stl10": official.stl10,
    "fashion-mnist": official.fashion,
}
NAMES = {
    "cifar10": CIFAR_NAMES,
    "cifar100": official.FINE,
    "stl10": STL_NAMES,
    "fashion-mnist": FASHION_NAMES,
}


def same(data: Dataset, made: Written) -> None:
    """Both parts of a data set are what was written, picture by picture."""
    for split, pictures, labels in (
        (data.train, made.train, made.train_labels),
        (data.test, made.test, made.test_labels),
    ):
        assert len(split) == len(pictures)
        for row, (image, label, index) in enumerate(split):
            assert image.dtype == torch.uint8 and (label, index) == (labels[row], row)
            for channel in range(3):
                expected = pictures[row][channel % len(pictures[row])]
                assert (image[channel].numpy() == expected).all()


@pytest.mark.parametrize("name", WRITERS)
def test_pictures_and_labels_are_those_of_the_files(name: str, tmp_path: Path) -> None:
    made = WRITERS[name](tmp_path)
    data = build(f"{name}:{made.folder}")
    same(data, made)
    assert data.train.names == data.test.names == NAMES[name]
    assert data.val is None
    assert data.card["shared_classes"] == {"test": len(NAMES[name])}
    assert data.card["complete"] is False
    assert data.card["licence"] == ("MIT" if name == "fashion-mnist" else "none stated")
    assert build(f"{name}:{tmp_path}").card == data.card


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_the_archive_is_the_folder_that_it_unpacks_to(name: str, tmp_path: Path) -> None:
    made = WRITERS[name](tmp_path / "unpacked")
    called = {"cifar10": "cifar-10-binary", "cifar100": "cifar-100-binary", "stl10": "stl10_binary"}
    official.archive(made.folder, tmp_path / f"{called[name]}.tar.gz")
    before = sorted(tmp_path.rglob("*"))
    for path in (tmp_path, tmp_path / f"{called[name]}.tar.gz"):
        data = build(f"{name}:{path}")
        same(data, made)
        assert data.card == build(f"{name}:{made.folder}").card
    assert sorted(tmp_path.rglob("*")) == before


def test_superclasses_are_the_coarse_labels(tmp_path: Path) -> None:
    made = official.cifar100(tmp_path)
    made.train_labels %= 20
    made.test_labels %= 20
    data = build(f"cifar100:{tmp_path},coarse=true")
    same(data, made)
    assert data.train.names == data.test.names == official.COARSE


def test_torchvision_reads_the_same_cifar_from_the_version_for_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = official.cifar10(tmp_path)
    other = tmp_path / "cifar-10-batches-py"
    other.mkdir()
    cut = len(made.train) // 5
    batches = {"test_batch": (made.test, made.test_labels)} | {
        f"data_batch_{i + 1}": (
            made.train[i * cut : (i + 1) * cut],
            made.train_labels[i * cut : (i + 1) * cut],
        )
        for i in range(5)
    }
    for file, (pictures, labels) in batches.items():
        content = {"data": pictures.reshape(len(labels), -1), "labels": labels.tolist()}
        (other / file).write_bytes(pickle.dumps(content))
    (other / "batches.meta").write_bytes(pickle.dumps({"label_names": CIFAR_NAMES}))
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    data = build(f"cifar10:{tmp_path}")
    for split, train in ((data.train, True), (data.test, False)):
        twin = twins.CIFAR10(tmp_path, train=train)
        assert twin.classes == split.names
        assert split.labels.tolist() == twin.targets
        for (image, _, _), (picture, _) in zip(split, twin, strict=True):
            assert torch.equal(image, functional.pil_to_tensor(picture))


def test_torchvision_reads_the_same_stl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.stl10(tmp_path)
    monkeypatch.setattr("torchvision.datasets.stl10.check_integrity", lambda *_: True)
    data = build(f"stl10:{tmp_path}")
    for split, part in ((data.train, "train"), (data.test, "test")):
        twin = twins.STL10(str(tmp_path), split=part)
        for (image, label, _), (picture, target) in zip(split, twin, strict=True):
            assert label == target
            assert torch.equal(image, functional.pil_to_tensor(picture))


def test_torchvision_reads_the_same_fashion_where_it_keeps_it(tmp_path: Path) -> None:
    official.fashion(tmp_path / "FashionMNIST" / "raw", packed=False)
    data = build(f"fashion-mnist:{tmp_path}")
    for split, train in ((data.train, True), (data.test, False)):
        twin = twins.FashionMNIST(tmp_path, train=train)
        assert twin.classes == split.names
        assert split.labels.tolist() == twin.targets.tolist()
        images = torch.stack([image for image, _, _ in split])
        assert torch.equal(images, twin.data[:, None].expand(-1, 3, -1, -1))


VERSIONS = {
    "cifar10": ("cifar-10-batches-py", "data_batch_1", "cifar-10-binary.tar.gz"),
    "cifar100": ("cifar-100-python", "meta", "cifar-100-binary.tar.gz"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version_of_pickles_is_refused_and_the_other_named(name: str, tmp_path: Path) -> None:
    folder, file, binary = VERSIONS[name]
    place = tmp_path / folder
    place.mkdir()
    (place / file).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    packed = official.archive(place, tmp_path / "any.tar.gz")
    for path in (tmp_path, place, packed):
        with pytest.raises(UserError, match=f"never loaded; get the binary version, {binary}"):
            build(f"{name}:{path}")


@pytest.mark.parametrize("name", WRITERS)
def test_all_that_is_broken_is_told_at_once(name: str, tmp_path: Path) -> None:
    made = WRITERS[name](tmp_path)
    first, *others = sorted(made.folder.iterdir())
    gone, cut = others[-1], others[0]
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2 - 1])
    cut.write_bytes(b"")
    gone.unlink()
    with pytest.raises(UserError, match=r"^3 of the \d files") as caught:
        build(f"{name}:{tmp_path}")
    said = str(caught.value)
    assert "\n" not in said
    for file in (first, cut):
        assert f"{file.name.removesuffix('.gz')} (" in said
    assert f"{gone.name.removesuffix('.gz')} (missing)" in said


def test_what_lies_elsewhere_or_nowhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        build(f"cifar10:{tmp_path / 'absent'}")
    with pytest.raises(UserError, match="holds none of the files of STL-10"):
        build(f"stl10:{tmp_path}")
    (tmp_path / "file").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"cannot be read as a tar archive .*; get it again$"):
        build(f"stl10:{tmp_path / 'file'}")
    with pytest.raises(UserError, match="holds none of the files of STL-10"):
        official.cifar10(tmp_path)
        packed = official.archive(tmp_path / "cifar-10-batches-bin", tmp_path / "c.tar.gz")
        build(f"stl10:{packed}")


def test_an_archive_that_is_cut_short_is_told(tmp_path: Path) -> None:
    packed = official.archive(official.stl10(tmp_path).folder, tmp_path / "stl10_binary.tar.gz")
    content = packed.read_bytes()
    for kept in (10, 1000, len(content) // 2, len(content) * 9 // 10):
        packed.write_bytes(content[:kept])
        with pytest.raises(UserError, match="cannot be read as a tar archive"):
            build(f"stl10:{packed}")


@pytest.mark.parametrize(
    ("name", "file", "place", "value", "told"),
    [
        ("cifar10", "data_batch_2.bin", 3073, 10, r"record 2 has the label 10, not in 0\.\.9"),
        ("cifar100", "train.bin", 0, 20, r"record 1 has the label 20, not in 0\.\.19"),
        ("cifar100", "test.bin", 3075, 100, r"record 2 has the label 100, not in 0\.\.99"),
        ("cifar100", "fine_label_names.txt", 5, ord("1"), "99 different class names, not 100"),
        ("stl10", "train_y.bin", 4, 0, r"record 5 has the label 0, not in 1\.\.10"),
        ("stl10", "test_y.bin", 0, 11, r"record 1 has the label 11, not in 1\.\.10"),
        ("fashion-mnist", "t10k-labels-idx1-ubyte", 8, 10, r"record 1 has the label 10, not in 0"),
        ("fashion-mnist", "train-images-idx3-ubyte", 11, 27, "its header"),
        ("fashion-mnist", "train-images-idx3-ubyte", 2, 9, "its header"),
        ("fashion-mnist", "train-images-idx3-ubyte", 7, 31, "23,520 bytes do not make the 31"),
        ("fashion-mnist", "train-labels-idx1-ubyte", 4, 1, "30 bytes do not make"),
    ],
)
def test_a_wrong_byte_is_told(
    name: str, file: str, place: int, value: int, told: str, tmp_path: Path
) -> None:
    made = WRITERS[name](tmp_path)
    for packed in made.folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    content = bytearray((made.folder / file).read_bytes())
    content[place] = value
    (made.folder / file).write_bytes(content)
    with pytest.raises(UserError, match=rf"1 of the \d files .*{file} \({told}"):
        build(f"{name}:{tmp_path}")


@pytest.mark.parametrize(("name", "ending"), [("stl10", "y.bin"), ("fashion-mnist", "labels")])
def test_labels_that_are_too_few_are_told_for_both_parts(
    name: str, ending: str, tmp_path: Path
) -> None:
    if name == "stl10":
        made = official.stl10(tmp_path)
        for file in made.folder.glob("*_y.bin"):
            file.write_bytes(file.read_bytes()[:-1])
    else:
        made = official.fashion(tmp_path, packed=False)
        for file in made.folder.glob("*labels*"):
            content = file.read_bytes()
            file.write_bytes(content[:7] + bytes([content[7] - 1]) + content[8:-1])
    with pytest.raises(UserError, match="30 pictures in .* 29 labels .* 20 pictures in .* 19 lab"):
        build(f"{name}:{tmp_path}")


@pytest.mark.parametrize("name", WRITERS)
def test_a_size_resizes_what_is_read(name: str, tmp_path: Path) -> None:
    made = WRITERS[name](tmp_path)
    for size in (16, 40):
        data = build(f"{name}:{tmp_path},size={size}")
        assert data.card["size"] == size
        whole = torch.from_numpy(made.test[:4]).float()
        twin = torch.nn.functional.interpolate(
            whole, (size, size), mode="bilinear", antialias=True, align_corners=False
        )
        read = data.test.pictures.read(range(4))
        assert read.shape == (4, 3, size, size)
        assert float((read.float() - twin).abs().max()) <= 1.01
    assert data.test.pictures.read([]).shape == (0, 3, 40, 40)


def test_the_hash_is_of_the_pictures_whatever_their_size(tmp_path: Path) -> None:
    made = official.cifar10(tmp_path)
    one = build(f"cifar10:{tmp_path}").card["sha256"]
    assert build(f"cifar10:{tmp_path},size=8").card["sha256"] == one
    file = made.folder / "test_batch.bin"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert build(f"cifar10:{tmp_path}").card["sha256"] != one
