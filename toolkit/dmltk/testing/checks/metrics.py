"""What every metric must do."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dmltk.testing import samples
from dmltk.testing.part import Part

Figures = dict[str, float | None]


def use(part: Part) -> Figures:
    """Its figures for twelve pictures against themselves."""
    return _figures(part, *samples.embeddings())


def check_figures_are_named_numbers(part: Part) -> None:
    """A dict of names to finite floats, or None where a figure is not defined."""
    found = use(part)
    assert found, "it gives no figure"
    for name, value in found.items():
        assert isinstance(name, str) and name, f"a figure's name is {name!r}"
        assert value is None or isinstance(value, float), f"{name} is a {type(value).__name__}"
        assert value is None or math.isfinite(value), f"{name} is {value}: give None"


def check_the_order_of_queries_does_not_matter(part: Part) -> None:
    """Queries in another order give the same figures."""
    z, labels = samples.embeddings(16)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    built = part.build()
    own = torch.arange(16)
    one = built(z, z, labels, labels, own)
    two = built(z[order], z, labels[order], labels, own[order])
    _close(one, two, "the order of the queries")


def check_the_labels_names_do_not_matter(part: Part) -> None:
    """Labels with gaps and in another order give the same figures."""
    z, labels = samples.embeddings(16)
    other = torch.tensor([70, 3, 1000, 12])[labels]
    _close(_figures(part, z, labels), _figures(part, z, other), "the names of the classes")


def check_degenerate_galleries_are_defined(part: Part) -> None:
    """One query, one class, no picture of the query's class, two pictures: no NaN, no crash."""
    z, labels = samples.embeddings()
    own = torch.arange(12)
    away = torch.full((12,), -1)
    cases = {
        "one query": (z[:1], z, labels[:1], labels, own[:1]),
        "one class": (z, z, labels * 0, labels * 0, own),
        "no class twice": (z[:4], z[:4], labels[:4], labels[:4], own[:4]),
        "a gallery of two": (z[:2], z[2:4], labels[:2], labels[2:4], away[:2]),
        "a gallery set apart": (z[:6], z[6:], labels[:6], labels[6:], away[:6]),
        "all alike": (z[:1].expand(12, -1), z[:1].expand(12, -1), labels, labels, own),
    }
    built = part.build()
    for name, given in cases.items():
        for figure, value in built(*given).items():
            assert value is None or math.isfinite(value), f"{name}: {figure} is {value}: give None"


def check_embeddings_are_not_written_into(part: Part) -> None:
    """It works on copies."""
    z, labels = samples.embeddings()
    before = z.clone()
    _figures(part, z, labels)
    assert torch.equal(z, before), "it writes into the embeddings"


def _figures(part: Part, z: Tensor, labels: Tensor) -> Figures:
    found: Figures = part.build()(z, z, labels, labels, torch.arange(len(z)))
    return found


def _close(one: Figures, two: Figures, what: str) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        other = two[name]
        same = value == other or (
            value is not None and other is not None and math.isclose(value, other, abs_tol=1e-5)
        )
        assert same, f"{name} is {value}, and {other} where only {what} is another"
