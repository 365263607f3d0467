from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dmltk.data.files import Files
from dmltk.data.folder import folder
from dmltk.data.glyphs import glyphs
from dmltk.data.loading import batches
from dmltk.data.samplers import BalancedBatches
from dmltk.data.split import Split, load


@pytest.fixture
def photos(tmp_path: Path, picture) -> Split:
    for label in range(4):
        for number in range(3):
            picture(tmp_path / "p" / str(label) / f"{number}.png", (12 + label, 14 + number, 3))
    return folder(str(tmp_path / "p"), size=10).train


def seen(split: Split, workers: int, epochs: int = 2) -> list[tuple[torch.Tensor, ...]]:
    sampler = BalancedBatches(split.labels, batch=2, per_class=1, seed=3)
    loader = batches(split, sampler, workers=workers, seed=5)
    found = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        found += list(loader)
    assert len(found) == epochs * len(sampler)
    return found


def test_batches_are_the_same_bits_for_any_number_of_workers(photos: Split) -> None:
    expected = seen(photos, 0)
    for workers in (1, 2):
        for left, right in zip(seen(photos, workers), expected, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_a_batch_is_what_load_gives_for_the_samplers_rows() -> None:
    split = glyphs(classes=8, per_class=4, size=8).train
    sampler = BalancedBatches(split.labels, batch=8, seed=0)
    for batch, rows in zip(batches(split, sampler), sampler, strict=True):
        assert isinstance(batch, tuple)
        for part, expected in zip(batch, load(split, rows), strict=True):
            assert torch.equal(part, expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_global_random_state_is_left_alone(photos: Split, workers: int) -> None:
    before = torch.get_rng_state()
    seen(photos, workers, epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_epoch_that_was_broken_off_does_not_leak_into_the_next(photos: Split) -> None:
    sampler = BalancedBatches(photos.labels, batch=2, per_class=1, seed=3)
    loader = batches(photos, sampler, workers=1)
    next(iter(loader))
    sampler.set_epoch(1)
    assert [batch[2].tolist() for batch in loader] == list(sampler)


def test_a_file_that_vanished_is_named_by_the_worker_too(photos: Split) -> None:
    assert isinstance(photos.pictures, Files)
    photos.pictures.paths[0].unlink()
    sampler = BalancedBatches(photos.labels, batch=2, per_class=1, seed=3)
    with pytest.raises(FileNotFoundError, match=photos.pictures.paths[0].name):
        list(batches(photos, sampler, workers=1))
