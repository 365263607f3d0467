from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from dmltk.data import files
from dmltk.data.files import Files, square
from dmltk.data.folder import folder
from dmltk.data.split import load
from dmltk.errors import UserError
from PIL import Image


@pytest.fixture
def photos(tmp_path: Path, picture) -> Path:
    root = tmp_path / "my photos"
    for name in ("cat", "ant", "dog", "Bee"):
        for number in range(3):
            picture(root / name / f"{number}.{'png' if number else 'jpg'}")
    return root


def test_classes_are_divided_in_the_order_of_their_names(photos: Path) -> None:
    data = folder(str(photos), size=16)
    assert data.train.names == ["Bee", "ant"]
    assert data.test.names == ["cat", "dog"]
    images, labels, _ = load(data.train, range(6))
    assert images.shape == (6, 3, 16, 16)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.card["pictures"] == {"train": 6, "test": 6}
    assert folder(str(photos), size=16, val=0.5).card["classes"] == {
        "train": 1,
        "val": 1,
        "test": 2,
    }


def test_the_hash_tells_contents_and_names(photos: Path, picture) -> None:
    before = folder(str(photos)).card["sha256"]
    assert folder(str(photos)).card["sha256"] == before
    (photos / "cat" / "1.png").rename(photos / "cat" / "5.png")
    renamed = folder(str(photos)).card["sha256"]
    picture(photos / "cat" / "5.png", (9, 9, 3))
    assert len({before, renamed, folder(str(photos)).card["sha256"]}) == 3


def test_every_broken_file_is_named_in_one_error(photos: Path) -> None:
    jpeg = photos / "ant" / "0.jpg"
    jpeg.write_bytes(jpeg.read_bytes()[:-200])
    (photos / "dog" / "2.png").write_bytes(b"not a picture")
    (photos / "dog" / "empty.png").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        folder(str(photos))
    message = str(caught.value)
    assert "3 of 13 pictures" in message
    for name in ("ant/0.jpg", "dog/2.png", "dog/empty.png"):
        assert str(Path(name)) in message
    assert "\n" not in message


def test_of_many_broken_files_ten_are_named_and_all_counted(photos: Path) -> None:
    for number in range(14):
        (photos / "dog" / f"bad{number:02}.png").write_bytes(b"x")
    with pytest.raises(UserError, match=r"14 of 26 .*bad09\.png and 4 more"):
        folder(str(photos))


def test_other_files_are_skipped_and_counted(photos: Path) -> None:
    (photos / "README.txt").write_text("x")
    (photos / "cat" / "Thumbs.db").write_text("x")
    (photos / "cat" / "._1.png").write_text("x")
    (photos / ".ipynb_checkpoints").mkdir()
    (photos / ".ipynb_checkpoints" / "a.png").write_text("x")
    data = folder(str(photos))
    assert data.card["skipped"] == {"not_pictures": 3}
    assert data.card["pictures"] == {"train": 6, "test": 6}


def test_sub_folders_of_a_class_belong_to_it_and_linked_ones_do_not(
    photos: Path, tmp_path: Path, picture
) -> None:
    picture(photos / "cat" / "kittens" / "a.png")
    picture(tmp_path / "elsewhere" / "b.png")
    (photos / "elk").symlink_to(tmp_path / "elsewhere")
    (photos / "cat" / "loop").symlink_to(photos)
    data = folder(str(photos))
    assert data.test.names == ["cat", "dog"]
    assert data.card["pictures"] == {"train": 6, "test": 7}


def divided(photos: Path) -> Path:
    """Cat, dog and ant train, ant and Bee test."""
    for name in ("train", "test"):
        (photos / name).mkdir()
    for name in ("cat", "dog"):
        (photos / name).rename(photos / "train" / name)
    for name in ("ant", "Bee"):
        (photos / name).rename(photos / "test" / name)
    (photos / "train" / "ant").mkdir()
    (photos / "test" / "ant" / "0.jpg").rename(photos / "train" / "ant" / "0.jpg")
    return photos


def test_train_and_test_folders_are_the_splits_and_shared_classes_are_counted(
    photos: Path, picture
) -> None:
    divided(photos)
    (photos / "train" / "notes.txt").write_text("x")
    picture(photos / "test" / "stray.png")
    data = folder(str(photos), size=16)
    assert (data.train.names, data.test.names) == (["ant", "cat", "dog"], ["Bee", "ant"])
    assert data.val is None
    assert data.card["pictures"] == {"train": 7, "test": 5}
    assert data.card["single_picture_classes"] == {"train": 1, "test": 0}
    assert data.card["shared_classes"] == {"test": 1}
    assert data.card["skipped"] == {"not_pictures": 2}
    held = folder(str(photos), size=16, val=0.3)
    assert held.val is not None
    assert (held.train.names, held.val.names) == (["ant", "cat"], ["dog"])
    picture(photos / "val" / "ape" / "0.png")
    own = folder(str(photos), size=16)
    assert own.val is not None
    assert own.val.names == ["ape"]
    assert own.card["shared_classes"] == {"val": 0, "test": 1}
    with pytest.raises(UserError, match="validation split already"):
        folder(str(photos), val=0.3)


def test_halves_of_the_classes_share_none(photos: Path) -> None:
    assert folder(str(photos), val=0.5).card["shared_classes"] == {"val": 0, "test": 0}


def test_a_division_that_is_not_clear_is_refused(photos: Path, tmp_path: Path, picture) -> None:
    divided(photos)
    picture(photos / "extra" / "0.png")
    with pytest.raises(UserError, match="'extra' beside train/ and test/"):
        folder(str(photos))
    (photos / "extra").rename(tmp_path / "extra")
    (photos / "test").rename(photos / "val")
    with pytest.raises(UserError, match="no test/"):
        folder(str(photos))
    (photos / "test").mkdir()
    with pytest.raises(UserError, match="is in the split 'test'"):
        folder(str(photos))


def test_a_class_may_be_called_train(photos: Path) -> None:
    (photos / "cat").rename(photos / "train")
    assert folder(str(photos)).test.names == ["dog", "train"]


def test_folders_that_hold_no_data_set_are_refused_each_in_its_own_words(
    tmp_path: Path, picture
) -> None:
    def complaint(path: Path) -> str:
        with pytest.raises(UserError) as caught:
            folder(str(path))
        return str(caught.value)

    assert "no folder" in complaint(tmp_path / "nowhere")
    assert "is empty" in complaint(tmp_path)
    picture(tmp_path / "a.png")
    assert "beside each other" in complaint(tmp_path)
    (tmp_path / "a.png").rename(tmp_path / "a.txt")
    assert "no pictures in the class folders" in complaint(tmp_path)
    picture(tmp_path / "only" / "a.png")
    assert "one class only ('only')" in complaint(tmp_path)


def test_the_shorter_side_is_resized_and_the_middle_is_cut_out() -> None:
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, 20:60] = 200
    out = square(Image.fromarray(pixels), 20)
    assert out.shape == (3, 20, 20)
    assert int(out[:, :, 1:-1].min()) == 200


def test_pictures_are_kept_once_decoded_where_they_fit(photos: Path, monkeypatch) -> None:
    paths = sorted(photos.glob("*/*.png"))
    kept = Files(paths, 16)
    first = kept.read([3, 0, 3])
    monkeypatch.setattr(files, "KEPT", 0)
    lean = Files(paths, 16)
    assert torch.equal(lean.read([3, 0, 3]), first)
    assert torch.equal(pickle.loads(pickle.dumps(kept)).read([3, 0, 3]), first)
    for path in paths:
        path.unlink()
    assert torch.equal(kept.read([3, 0, 3]), first)
    with pytest.raises(FileNotFoundError):
        lean.read([0])
    assert kept.read([]).shape == (0, 3, 16, 16)
