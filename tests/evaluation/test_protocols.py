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


def test_gallery_is_clean_queries_against_adversarial_twins() -> None:
    generator = torch.Generator().manual_seed(0)
    z, twins = torch.randn(5, 2, generator=generator), torch.randn(5, 2, generator=generator)
    y, order = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([3, 1, 4, 0, 2])
    clean = Embedded(z, y, torch.arange(5))
    adversarial = Embedded(twins[order], y[order], order)
    gallery = registry.build("protocols", "gallery")
    assert gallery.attacked == "all"
    sides = gallery(clean, adversarial)
    assert torch.equal(sides.query, z) and torch.equal(sides.gallery, twins[order])
    assert torch.equal(sides.gallery[sides.query_index], twins)
    assert torch.equal(sides.gallery_labels[sides.query_index], y)
    with pytest.raises(UserError, match="protocol 'gallery' replaces every picture"):
        gallery(clean, Embedded(twins[:2], y[:2], torch.arange(2)))
