from __future__ import annotations

import pytest
import torch
from dmltk import registry
from dmltk.errors import UserError
from dmltk.evaluation.protocols import Embedded, Sides
from torch import Tensor


def embedded(rows: list[int], shift: float = 0.0) -> Embedded:
    index = torch.tensor(rows, dtype=torch.long)
    return Embedded(index[:, None].float() + shift, index // 2, index)


def lists(sides: Sides) -> tuple[list[float], list[float], list[int], list[int], list[int]]:
    def flat(values: Tensor) -> list[float]:
        return values.flatten().tolist()

    return (
        flat(sides.query),
        flat(sides.gallery),
        sides.query_labels.tolist(),
        sides.gallery_labels.tolist(),
        sides.query_index.tolist(),
    )


def test_clean_sets_the_split_against_itself() -> None:
    protocol = registry.build("protocol", "clean")
    assert protocol.attacked == "none"
    z = [0.0, 1.0, 2.0]
    assert lists(protocol(embedded([0, 1, 2]))) == (z, z, [0, 0, 1], [0, 0, 1], [0, 1, 2])


def test_query_attacks_any_part_and_leaves_out_its_own_clean_rows() -> None:
    protocol = registry.build("protocol", "query")
    assert protocol.attacked == "query"
    sides = protocol(embedded([5, 3, 0, 2]), embedded([2, 5, 4], 0.5))
    assert lists(sides) == ([2.5, 5.5, 4.5], [5, 3, 0, 2], [1, 2, 2], [2, 1, 0, 1], [3, 0, -1])


def test_all_replaces_both_sides() -> None:
    protocol = registry.build("protocol", "all")
    assert protocol.attacked == "all"
    sides = protocol(embedded([0, 1, 2]), embedded([2, 0, 1], 0.5))
    z = [2.5, 0.5, 1.5]
    assert lists(sides) == (z, z, [1, 0, 0], [1, 0, 0], [0, 1, 2])


def test_all_refuses_a_part() -> None:
    with pytest.raises(UserError, match="2 of 3 were attacked"):
        registry.build("protocol", "all")(embedded([0, 1, 2]), embedded([0, 2]))


@pytest.mark.parametrize("name", ["query", "all"])
def test_an_attack_is_needed(name: str) -> None:
    with pytest.raises(UserError, match="needs adversarial pictures"):
        registry.build("protocol", name)(embedded([0, 1]))
