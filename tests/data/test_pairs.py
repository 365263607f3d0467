"""Lists of pairs: labels by what is joined, and everything that is wrong told by line."""

from __future__ import annotations

import itertools
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from dmltk.data import build
from dmltk.data.pairs import components
from dmltk.data.split import load
from dmltk.errors import UserError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TEST = "shapes(test_per_class=2)"
edges = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=16)


@pytest.fixture
def listed(tmp_path: Path, picture):
    """Writes six pictures and a list, given as lines of text."""
    for number, name in enumerate("abcdef"):
        picture(tmp_path / f"{name}.png", (20 + number, 30, 3))

    def write(*lines: str, header: str = "a,b,same") -> Path:
        file = tmp_path / "list.csv"
        file.write_text("\n".join([header, *lines]), encoding="utf-8")
        return file

    return write


def made(file: Path):
    return build(f"pairs:'{file}',test={TEST},size=16")


def complaint(file: Path) -> str:
    with pytest.raises(UserError) as caught:
        made(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@given(edges)
def test_labels_are_what_like_pairs_join(like: list[tuple[int, int]]) -> None:
    graph = networkx.Graph(like)
    graph.add_nodes_from(range(12))
    labels, first = components(np.array(like, dtype=np.int64).reshape(-1, 2), 12)
    for a, b in itertools.combinations(range(12), 2):
        assert (labels[a] == labels[b]) == networkx.has_path(graph, a, b)
    assert first.tolist() == sorted(min(part) for part in networkx.connected_components(graph))
    assert labels[first].tolist() == list(range(len(first)))


@given(st.data())
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_same_is_an_equal_label_for_every_listed_pair_or_all_is_refused(listed, data) -> None:
    every = list(itertools.permutations("abcdef", 2))
    said = data.draw(st.lists(st.tuples(st.sampled_from(every), st.booleans()), min_size=1))
    graph = networkx.Graph([pair for pair, same in said if same])
    graph.add_nodes_from("abcdef")
    wrong = [p for p, same in said if not same and networkx.has_path(graph, *p)]
    file = listed(*(f"{a}.png,{b}.png,{int(same)}" for (a, b), same in said))
    if wrong:
        told = complaint(file).partition(", such as ")[0]
        assert told.count("≁") == min(len(wrong), 10)
        assert all(f"{a}.png ≁ {b}.png" in told for a, b in wrong[:10])
        return
    train = made(file).train
    assert train.pairs.shape == (len(said), 2)
    for ((a, b), same), (one, other) in zip(said, train.pairs.tolist(), strict=True):
        assert (train.labels[one] == train.labels[other]) == same
        assert [train.pictures.paths[row].stem for row in (one, other)] == [a, b]


def test_the_splits_and_the_card(listed) -> None:
    file = listed(
        "a.png, b.png,1,x",
        "b.png,./c.png,TRUE,x",
        "d.png,a.png,0,x",
        "",
        "b.png,c.png,1,x",
        header="A,b,Same,by",
    )
    data = made(file)
    images, labels, _ = load(data.train, range(4))
    assert images.shape == (4, 3, 16, 16)
    assert labels.tolist() == [0, 0, 0, 1]
    assert data.train.names == ["a.png", "d.png"]
    assert data.train.pairs.tolist() == [[0, 1], [1, 2], [3, 0], [1, 2]]
    assert data.card["pairs"] == {"like": 3, "unlike": 1}
    assert data.card["classes"] == {"train": 2, "test": 5}
    assert data.card["ignored_columns"] == ["by"]
    assert data.card["test"]["name"] == "shapes"
    assert data.test.pairs is None and data.val is None
    one, two = data.card["sha256"], made(listed("a.png,b.png,1", "d.png,c.png,0")).card["sha256"]
    assert one != two != made(listed("a.png,b.png,0", "d.png,c.png,1")).card["sha256"]


def test_validation_classes_are_those_of_the_other_set(listed) -> None:
    file = listed("a.png,b.png,1", "c.png,a.png,0")
    spec = f"pairs:'{file}',test=glyphs(classes=8,per_class=2,val=.3,size=16),size=16"
    data = build(spec)
    assert data.val is not None
    assert len(data.val.names) == 1 and data.card["classes"]["val"] == 1
    with pytest.raises(UserError, match="val"):
        build(f"{spec},val=.2")


def test_a_contradiction_is_told_with_a_chain(listed) -> None:
    said = complaint(
        listed(
            "a.png,b.png,1", "b.png,c.png,1", "e.png,f.png,1", "c.png,d.png,1", "a.png,d.png,0",
            "f.png,e.png,0", "a.png,e.png,0",
        )
    )  # fmt: skip
    assert "line 6 (a.png ≁ d.png), line 7 (f.png ≁ e.png), such as a.png ≁ d.png" in said
    assert "although a.png ~ b.png, b.png ~ c.png, c.png ~ d.png;" in said
    assert "line 8" not in said


def test_links_to_one_picture_are_one_picture(listed, tmp_path: Path) -> None:
    (tmp_path / "again.png").symlink_to(tmp_path / "a.png")
    data = made(listed("a.png,b.png,1", "again.png,c.png,0"))
    assert data.train.pairs.tolist() == [[0, 1], [0, 2]]
    assert "beside itself" in complaint(listed("a.png,again.png,1"))


def test_lines_that_cannot_be_used_are_told_in_one_pass(listed) -> None:
    said = complaint(
        listed("a.png,b.png,1", "a.png,b.png,maybe", "a.png,./a.png,1", "a.png,,1", "a.png,b.png")
    )
    assert "line 3 (same 'maybe' is none of 1, true, 0, false)" in said
    assert "line 4 ('a.png' beside itself), line 5 (no b), line 6 (2 fields for 3 columns)" in said


def test_missing_and_broken_pictures_are_told_in_one_pass(listed, tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(b"no picture")
    said = complaint(listed("a.png,b.png,1", "z.png,b.png,0", "y.png,a.png,0"))
    assert said.startswith("3 of 4 pictures in ")
    assert "line 2 'b.png', line 3 'z.png' (missing), line 4 'y.png' (missing)" in said


def test_what_is_missing_is_said(listed, tmp_path: Path) -> None:
    file = listed("a.png,b.png,1")
    for spec, text in (
        (f"pairs:'{file}'", "needs test"),
        (f"pairs:'{tmp_path}/no.csv',test={TEST}", "columns a, b and same"),
        (f"pairs:'{file}',test={TEST}", "give both the same size"),
        (f"pairs:'{file}',test=shaped", "shapes"),
    ):
        with pytest.raises(UserError, match=text):
            build(spec)
    with pytest.raises(UserError, match="has no column 'same'"):
        made(listed("a.png,b.png", header="a,b"))


def test_size_is_offered_to_both(listed) -> None:
    file = listed("a.png,b.png,1", "c.png,b.png,0")
    data = build(f"pairs:'{file}',test={TEST}", context={"size": 24})
    assert load(data.train, [0])[0].shape == load(data.test, [0])[0].shape == (1, 3, 24, 24)


def test_pairs_are_rows_two_by_two(listed) -> None:
    from dmltk.data.split import Memory, Split

    with pytest.raises(UserError, match=r"\(M, 2\)"):
        Split(
            Memory(torch.zeros(2, 3, 4, 4)), torch.tensor([0, 1]), ["a", "b"], pairs=torch.ones(3)
        )
