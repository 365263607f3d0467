"""A test split with a gallery of its own: from lines, from folders, in the card."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch
from dmltk.data import build
from dmltk.data.csv import csv
from dmltk.data.division import divide
from dmltk.data.folder import folder
from dmltk.data.split import Memory, number
from dmltk.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

LINES = [
    ("train", "a", 2),
    ("train", "b", 2),
    ("query", "c", 2),
    ("query", "d", 1),
    ("query", "e", 1),
    ("gallery", "c", 1),
    ("gallery", "d", 3),
    ("gallery", "f", 1),
]
"""In-Shop's form: e is asked for and not there, f is there and never asked for."""


@pytest.fixture
def listed(tmp_path: Path, picture) -> Path:
    rows = [(f"{part}/{label}/{i}.png", label, part) for part, label, n in LINES for i in range(n)]
    for name, _, _ in rows:
        picture(tmp_path / "shop" / name)
    random.Random(0).shuffle(rows)
    file = tmp_path / "shop.csv"
    lines = (f"shop/{name},{label},{part}\n" for name, label, part in rows)
    file.write_text("path,label,split\n" + "".join(lines), encoding="utf-8")
    return file


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["train", "query", "gallery"])), max_size=30
    )
)
def test_queries_gallery_and_what_is_not_there_are_counted_by_brute_force(
    drawn: list[tuple[int, str]],
) -> None:
    drawn = [*drawn, (0, "train"), (6, "query"), (6, "gallery")]
    labels, names = number([label for label, _ in drawn])
    parts = [part for _, part in drawn]
    pixels = torch.arange(len(drawn), dtype=torch.float32)[:, None, None, None].expand(-1, 3, 2, 2)
    data = divide(Memory(pixels), labels, names, card={}, parts=parts)
    asked = [row for row, (_, part) in enumerate(drawn) if part == "query"]
    held = [row for row, (_, part) in enumerate(drawn) if part == "gallery"]
    seen = [int(image[0, 0, 0]) for image, _, _ in data.test]
    assert seen == sorted(asked + held)
    assert [seen[row] for row in data.test.queries] == asked
    assert [data.test.names[label] for label in data.test.labels] == [
        str(drawn[row][0]) for row in seen
    ]
    there = {drawn[row][0] for row in held}
    assert data.card["retrieval"] == {
        "queries": len(asked),
        "gallery": len(held),
        "queries_without_match": sum(drawn[row][0] not in there for row in asked),
    }


def test_a_list_and_folders_of_queries_and_a_gallery_say_the_same(listed: Path) -> None:
    by_line = build(f"csv:'{listed}',size=16")
    by_folder = build(f"folder:'{listed.parent / 'shop'}',size=16")
    for data in (by_line, by_folder):
        assert (data.train.names, data.test.names) == (["a", "b"], ["c", "d", "e", "f"])
        assert data.train.is_query is None
        assert data.train.queries == [0, 1, 2, 3]
        assert [data.test.names[data.test.labels[row]] for row in data.test.queries].count("c") == 2
        assert data.card["pictures"] == {"train": 4, "test": 9}
        assert data.card["shared_classes"] == {"test": 0}
        assert data.card["retrieval"] == {
            "queries": 4,
            "gallery": 5,
            "queries_without_match": 1,
        }
    assert csv(str(listed), size=16, val=0.5).card["retrieval"] == by_line.card["retrieval"]


def test_without_a_gallery_every_test_picture_asks_and_the_card_is_silent(
    tmp_path: Path, picture
) -> None:
    for name in ("a", "b", "c", "d"):
        picture(tmp_path / name / "0.png")
    data = folder(str(tmp_path), size=16)
    assert data.test.is_query is None
    assert data.test.queries == [0, 1]
    assert "retrieval" not in data.card


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("train query", "a split 'query' but none 'gallery'"),
        ("train gallery val", "a split 'gallery' but none 'query'"),
        ("train test query gallery", "'test' are queries and gallery at once.* 'query'"),
        ("train test gallery", "'test' are queries and gallery at once.* 'gallery'"),
        ("query gallery", "is in the split 'train'"),
    ],
)
def test_half_a_retrieval_is_refused(parts: str, message: str) -> None:
    some = parts.split()
    pictures = Memory(torch.zeros(len(some), 3, 2, 2))
    labels = torch.zeros(len(some), dtype=torch.long)
    with pytest.raises(UserError, match=message):
        divide(pictures, labels, ["x"], card={}, parts=some)


def test_a_gallery_without_any_class_of_the_queries_is_refused() -> None:
    with pytest.raises(UserError, match="no class of any query"):
        divide(
            Memory(torch.zeros(3, 3, 2, 2)),
            torch.tensor([0, 1, 2]),
            ["x", "y", "z"],
            card={},
            parts=["train", "query", "gallery"],
        )


def test_a_picture_may_not_be_a_query_and_in_the_gallery(listed: Path) -> None:
    text = listed.read_text()
    listed.write_text(text + "shop/../shop/query/c/0.png,c,gallery\n")
    with pytest.raises(UserError, match=r"1 queries are in the gallery too.* 'shop/query/c/0.png'"):
        csv(str(listed), size=16)
    boxed = "".join(
        f"{line},{'0 0 9 9' if line.endswith('gallery') else ''}\n" for line in text.split()[1:]
    )
    boxed += "shop/query/c/0.png,c,gallery,0 0 9 9\n"
    listed.write_text(f"path,label,split,box\n{boxed}")
    assert csv(str(listed), size=16).card["retrieval"]["gallery"] == 6
    shop = listed.parent / "shop"
    os.symlink(shop / "query" / "d" / "0.png", shop / "gallery" / "d" / "again.png")
    with pytest.raises(UserError, match=r"query.d.0\.png"):
        folder(str(shop), size=16)


def test_folders_that_leave_open_what_they_are_are_refused(listed: Path, picture) -> None:
    shop = listed.parent / "shop"
    picture(shop / "galery" / "c" / "0.png")
    with pytest.raises(UserError, match="'galery' beside train/ and query/"):
        folder(str(shop))
    (shop / "galery").rename(shop / "test")
    with pytest.raises(UserError, match="queries and gallery at once"):
        folder(str(shop))
