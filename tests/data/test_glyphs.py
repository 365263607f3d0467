from __future__ import annotations

import torch
from dmltk.data import contact_sheet, info
from dmltk.data.glyphs import PIECES, STROKES, distance, draw, glyphs, segments
from dmltk.data.split import load


def points(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, STROKES, 3, 2, generator=generator) * 2 - 1


def test_the_same_arguments_give_the_same_pictures_and_another_seed_others() -> None:
    first, again = (glyphs(classes=6, per_class=3, seed=4) for _ in range(2))
    other = glyphs(classes=6, per_class=3, seed=5)
    rows = range(9)
    assert torch.equal(load(first.train, rows)[0], load(again.train, rows)[0])
    assert first.card == again.card
    assert first.card["sha256"] != other.card["sha256"]


def test_global_random_state_is_neither_used_nor_moved() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    glyphs(classes=4, per_class=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_counts_shape_and_range_are_as_asked() -> None:
    data = glyphs(classes=10, per_class=4, size=24, val=0.2)
    assert data.val is not None
    assert info(data)["pictures"] == {"train": 16, "val": 4, "test": 20}
    assert info(data)["classes"] == {"train": 4, "val": 1, "test": 5}
    image, label, index = data.train[0]
    assert image.shape == (3, 24, 24)
    assert image.dtype == torch.uint8
    assert (label, index) == (0, 0)
    assert torch.equal(image[0], image[2])
    assert set(data.train.names).isdisjoint(data.test.names)


def test_no_picture_is_blank_and_none_is_twice() -> None:
    images, _, _ = load(glyphs(classes=20, per_class=4).train, range(40))
    assert float(images.flatten(1).std(dim=1).min()) > 0.03
    assert len(images.flatten(1).unique(dim=0)) == 40


def test_the_result_does_not_depend_on_the_chunk() -> None:
    strokes = torch.tensor([2, 3, 4, 2, 3, 4, 2])
    drawn = [
        draw(points(7), strokes, 13, torch.Generator().manual_seed(2), chunk=chunk)
        for chunk in (1, 3, 100)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_distance_equals_that_to_densely_sampled_segments() -> None:
    size = 9
    start, step = segments(points(3), torch.tensor([2, 3, 4]))
    got = torch.from_numpy(distance(start.numpy(), step.numpy(), size))
    axis = (torch.arange(size) + 0.5) * 2 / size - 1
    places = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1).view(-1, 2)
    along = torch.linspace(0, 1, 2001)[:, None]
    for picture in range(3):
        dense = start[picture][:, None] + along * step[picture][:, None]
        slow = torch.cdist(places, dense.reshape(-1, 2)).amin(1).view(size, size)
        assert torch.allclose(got[picture], slow, atol=2e-3)


def test_segments_follow_the_quadratic_curve_and_hidden_strokes_add_nothing() -> None:
    curves = points(2)
    start, step = segments(curves, torch.tensor([2, 4]))
    ends = (start + step).view(2, STROKES, PIECES, 2)
    starts = start.view(2, STROKES, PIECES, 2)
    assert torch.allclose(starts[1, :, 0], curves[1, :, 0], atol=1e-6)
    assert torch.allclose(ends[1, :, -1], curves[1, :, 2], atol=1e-6)
    middle = (curves[1, :, 0] + 2 * curves[1, :, 1] + curves[1, :, 2]) / 4
    assert torch.allclose(starts[1, :, PIECES // 2], middle, atol=1e-6)
    assert torch.equal(starts[0, 2], starts[0, 0])
    assert torch.equal(starts[0, 3], starts[0, 0])


def test_the_contact_sheet_shows_a_class_a_row_and_leaves_missing_pictures_empty(tmp_path) -> None:
    from PIL import Image

    split = glyphs(classes=4, per_class=2, size=16).train
    path = contact_sheet(split, 2, 3, tmp_path / "sheet.png")
    with Image.open(path) as sheet:
        assert sheet.size == (3 * 18 + 2, 2 * 18 + 2)
        assert sheet.getpixel((45, 10)) == (255, 255, 255)
