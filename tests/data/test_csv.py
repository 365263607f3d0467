from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from dmltk.data import build
from dmltk.data.csv import csv
from dmltk.data.files import square
from dmltk.data.samplers import BalancedBatches
from dmltk.data.split import load
from dmltk.errors import UserError
from PIL import Image


@pytest.fixture
def listed(tmp_path: Path, picture):
    """Writes a list and the pictures that it names; a list is given as text."""

    def write(text: str, *, missing: tuple[str, ...] = ()) -> Path:
        for name in set(re.findall(r"[\w/]+\.png", text)) - set(missing):
            picture(tmp_path / name, (20 + len(name), 30, 3))
        file = tmp_path / "my list.csv"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def complaint(file: Path, **args: object) -> str:
    with pytest.raises(UserError) as caught:
        csv(str(file), **args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_split_the_first_half_of_the_classes_trains(listed) -> None:
    file = listed("path,label\na.png,cat\nb/c.png,ant\nd.png,ant\ne.png,dog\nf.png,Bee\n")
    data = build(f"csv:'{file}',size=16")
    assert (data.train.names, data.test.names) == (["Bee", "ant"], ["cat", "dog"])
    images, labels, _ = load(data.train, range(3))
    assert images.shape == (3, 3, 16, 16)
    assert labels.tolist() == [1, 1, 0]
    assert data.card["single_picture_classes"] == {"train": 1, "test": 2}
    assert (data.card["name"], data.card["licence"]) == ("my list", "the user's own")
    assert data.card["skipped"] == {}


def test_a_split_column_is_followed_and_shared_classes_are_counted(listed) -> None:
    text = "label,split,path\nx,train,a.png\ny,Train,b.png\ny,test,c.png\nz,test,d.png\n"
    data = csv(str(listed(text)), size=16)
    assert (data.train.names, data.test.names) == (["x", "y"], ["y", "z"])
    assert data.val is None
    assert data.card["shared_classes"] == {"test": 1}
    data = csv(str(listed(f"{text}w,val,e.png\n")), size=16)
    assert data.val is not None
    assert data.val.names == ["w"]
    assert data.card["shared_classes"] == {"val": 0, "test": 1}


def test_validation_classes_are_the_last_training_classes_where_none_are_given(listed) -> None:
    text = "path,label,split\na.png,1,train\nb.png,2,train\nc.png,10,train\nd.png,11,test\n"
    data = csv(str(listed(text)), size=16, val=0.3)
    assert data.val is not None
    assert (data.train.names, data.val.names, data.test.names) == (["1", "2"], ["10"], ["11"])
    assert "validation split already" in complaint(listed(f"{text}e.png,5,val\n"), val=0.3)
    few = "path,label,split\na.png,1,train\nd.png,11,test\n"
    assert "leaves no training class" in complaint(listed(few), val=0.5)


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["10", "9", "-3", "9"], ["-3", "9", "10"]),
        (["01", "1", "2", "2"], ["01", "1", "2"]),
        ([str(2**70), "7", str(2**70 + 1)], ["7", str(2**70), str(2**70 + 1)]),
        (["ß, é", "1", "a b"], ["1", "a b", "ß, é"]),
        (["9" * 5000, "1", "1"], ["1", "9" * 5000]),
    ],
)
def test_labels_of_any_kind_become_contiguous(listed, labels: list[str], order: list[str]) -> None:
    rows = "".join(f'p{row}.png,"{label}"\n' for row, label in enumerate(labels))
    data = csv(str(listed(f"path,label\n{rows}")), size=16)
    assert [*data.train.names, *data.test.names] == order
    for split in (data.train, data.test):
        assert split.labels.unique().tolist() == list(range(len(split.names)))


def test_single_picture_classes_are_trained_on_by_repeating_the_picture(listed) -> None:
    rows = "".join(f"p{row}.png,{row},train\n" for row in range(4))
    data = csv(str(listed(f"path,label,split\n{rows}q.png,9,test\n")), size=16)
    assert data.card["single_picture_classes"] == {"train": 4, "test": 1}
    (batch,) = BalancedBatches(data.train.labels, batch=4, seed=0)
    assert batch[0] == batch[1] != batch[2] == batch[3]


def test_a_box_is_cut_out_of_the_upright_picture(listed, tmp_path: Path) -> None:
    text = "path,label,box\na.png,x,5 2 25 22\na.png,y,\n"
    file = listed(text)
    pixels = np.random.default_rng(1).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    upright = np.rot90(pixels, -1)
    data = csv(str(file), size=20)
    assert torch.equal(
        data.train[0][0], torch.from_numpy(upright[2:22, 5:25].copy()).permute(2, 0, 1)
    )
    assert torch.equal(data.test[0][0], square(Image.fromarray(upright.copy()), 20))


def test_pictures_are_looked_for_beside_the_list_or_below_the_root(listed, tmp_path: Path) -> None:
    file = listed("path,label\na.png,x\nb.png,y\n", missing=("a.png", "b.png"))
    (tmp_path / "elsewhere").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / "elsewhere" / name)
    assert "2 of 2 pictures" in complaint(file)
    data = csv(str(file), root=str(tmp_path / "elsewhere"), size=8)
    assert data.card["pictures"] == {"train": 1, "test": 1}


def test_other_columns_are_ignored_and_named_in_the_card(listed) -> None:
    data = csv(str(listed("id,path,label,query\n1,a.png,x,1\n2,b.png,y,0\n")), size=16)
    assert data.card["ignored_columns"] == ["id", "query"]


def test_the_hash_tells_labels_boxes_and_contents(listed, tmp_path: Path) -> None:
    texts = ["path,label\na.png,x\nb.png,y\n", "path,label\na.png,x\nb.png,z\n"]
    texts += ["path,label,box\na.png,x,0 0 9 9\nb.png,y,\n"]
    seen = [csv(str(listed(text)), size=16).card["sha256"] for text in (texts[0], *texts)]
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


def test_missing_broken_and_overrun_pictures_are_told_by_line_in_one_pass(
    listed, tmp_path: Path
) -> None:
    text = "path,label,box\n\na.png,x,\nb.png,y,\nc.png,z,0 0 31 10\n'd,e.png',w,\n"
    file = listed(text.replace("'", '"'), missing=("e.png",))
    (tmp_path / "b.png").write_bytes(b"no picture")
    said = complaint(file)
    assert said.startswith("3 of 4 pictures in ")
    assert "line 4 'b.png', line 5 'c.png' (box beyond 30×25 pixels)" in said
    assert "line 6 'd,e.png' (missing)" in said


def test_lines_that_cannot_be_used_are_told_in_one_pass(listed) -> None:
    text = "path,label,split,box\na.png,x,train,\nb.png,y,tset,\nc.png,z\n,w,test,\nd.png,,test,\n"
    text += (
        "e.png,v,test,1 2 3\nf.png,v,test,5 5 5 9\ng.png,v,test,a b c d\nh.png,v,test,-1 0 4 4\n"
    )
    said = complaint(listed(text))
    assert "line 3 (split 'tset' is none of train, val, test, query, gallery)" in said
    assert "line 4 (2 fields for 4 columns), line 5 (no path), line 6 (no label)" in said
    assert said.count("is not 'left top right bottom'") == 3
    assert "line 8 (box '5 5 5 9' is empty)" in said
    many = "".join(f"p{row}.png,\n" for row in range(14))
    assert "line 11 (no label) and 4 more" in complaint(listed(f"path,label\n{many}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path;label\na.png;x\n", r"line 1 has no column 'path' \(it reads: path;label\)"),
        ("\nfile,label\na.png,x\n", "line 2 has no column 'path'"),
        ("path,class\na.png,x\n", "no column 'label'"),
        ("", "line 1 has no column 'path'"),
        ("path,label,Label\na.png,x,y\n", "names the column 'label' twice"),
        ("path,label\n", "names no pictures"),
        ('path,label\na.png,"x\n', r"line \d is no CSV"),
        ("path,label,split\na.png,x,train\nb.png,y,train\n", "is in the split 'test'"),
        ("path,label\na.png,x\nb.png,x\n", "at least 2"),
    ],
)
def test_what_is_no_list_of_pictures_is_refused(listed, text: str, message: str) -> None:
    assert re.search(message, complaint(listed(text)))


def test_a_file_that_is_not_there_or_not_utf8_is_refused(tmp_path: Path) -> None:
    assert "no file" in complaint(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes("path,label\na.png,é\n".encode("latin-1"))
    assert "not UTF-8" in complaint(tmp_path / "latin.csv")


def test_the_byte_order_mark_of_spreadsheets_is_no_part_of_a_column(listed, tmp_path: Path) -> None:
    file = listed("path,label\na.png,x\nb.png,y\n")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert csv(str(file), size=16).test.names == ["y"]
