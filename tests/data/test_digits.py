from __future__ import annotations

import torch
from dmltk.data import build, info
from dmltk.data.digits import digits
from dmltk.data.split import load
from sklearn.datasets import load_digits


def test_the_pictures_are_scikit_learns_scaled_and_divided_by_class() -> None:
    data = build("digits")
    source = load_digits()
    assert data.train.names == ["0", "1", "2", "3", "4"]
    assert data.test.names == ["5", "6", "7", "8", "9"]
    assert data.card["pictures"] == {"train": 901, "test": 896}
    images, labels, _ = load(data.test, range(20))
    rows = [row for row, label in enumerate(source.target) if label >= 5][:20]
    assert labels.tolist() == [int(source.target[row]) - 5 for row in rows]
    for image, row in zip(images, rows, strict=True):
        for channel in image:
            expected = torch.from_numpy(source.images[row] / 16).float()
            assert torch.allclose(channel, expected, atol=0.5 / 255 + 1e-6)


def test_the_card_says_whose_they_are() -> None:
    card = info(digits(val=0.4))
    assert card["licence"] == "BSD-3-Clause"
    assert "Alpaydin" in card["credits"][0]["credit"]
    assert card["classes"] == {"train": 3, "val": 2, "test": 5}
    assert card["skipped"] == {}
    assert len(bytes.fromhex(card["sha256"])) == 32


def test_a_larger_size_enlarges() -> None:
    image = digits(size=16).train[0][0]
    small = digits().train[0][0]
    assert image.shape == (3, 16, 16)
    larger = torch.nn.functional.interpolate(small[None].float(), scale_factor=2, mode="bilinear")
    assert float((larger[0] - image.float()).abs().max()) <= 1
