from __future__ import annotations

from pathlib import Path

import torch
from dmltk.bench.state import Outcome, State


def outcome(first: int, count: int) -> Outcome:
    index = torch.arange(first, first + count)
    return Outcome(
        index=index,
        embeddings=torch.randn(count, 3),
        linf=torch.rand(count),
        l2=torch.rand(count),
        figures={"prank": torch.rand(count)},
        examples=torch.randint(0, 256, (count // 2, 3, 4, 4), dtype=torch.uint8),
        example_rows=index[: count // 2],
        counters={"forwards": 3 * count, "backwards": count, "zero_gradients": 1},
        notes=("a", "b"),
    )


def equal(one: Outcome, two: Outcome) -> bool:
    tensors = ("index", "embeddings", "linf", "l2", "examples", "example_rows")
    return (
        all(torch.equal(getattr(one, name), getattr(two, name)) for name in tensors)
        and one.figures.keys() == two.figures.keys()
        and all(torch.equal(one.figures[k], two.figures[k]) for k in one.figures)
        and (one.counters, one.notes) == (two.counters, two.notes)
    )


def test_an_outcome_is_read_back_to_the_bit(tmp_path: Path) -> None:
    state, kept = State(tmp_path / "s"), outcome(0, 5)
    state.save("x", kept)
    found = State(tmp_path / "s").load("x")
    assert found is not None and equal(found, kept)
    assert state.load("y") is None


def test_a_torn_file_counts_as_missing(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.save("x", outcome(0, 5))
    file = tmp_path / "x.safetensors"
    for size in (0, 7, 100, len(file.read_bytes()) - 1):
        file.write_bytes(file.read_bytes()[:size])
        assert state.load("x") is None


def test_parts_join_in_order_and_give_way_to_the_whole(tmp_path: Path) -> None:
    state = State(tmp_path)
    parts = [outcome(0, 4), outcome(4, 1), outcome(5, 3)]
    for number, part in enumerate(parts):
        state.save(f"x-{number}", part)
    whole = Outcome.joined(parts)
    assert whole.index.tolist() == list(range(8))
    assert torch.equal(whole.embeddings, torch.cat([part.embeddings for part in parts]))
    assert torch.equal(whole.figures["prank"], torch.cat([p.figures["prank"] for p in parts]))
    assert whole.examples.shape == (3, 3, 4, 4)
    assert whole.counters == {"forwards": 24, "backwards": 8, "zero_gradients": 3}
    assert whole.notes == ("a", "b")
    state.close("x", [f"x-{number}" for number in range(3)], whole)
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]
    kept = state.load("x")
    assert kept is not None and equal(kept, whole)
