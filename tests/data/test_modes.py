"""Pictures of every mode become 8-bit RGB, as an independent computation says."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from dmltk.data.files import check, decode
from dmltk.errors import UserError
from PIL import Image

RANDOM = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def decoded(path: Path) -> np.ndarray:
    picture = decode(path)
    assert picture.mode == "RGB"
    return np.asarray(picture).astype(int)


def on_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Colours (h, w, 3) of an opacity (h, w) over white."""
    share = alpha[..., None] / 255
    return colours * share + 255 * (1 - share)


def png(path: Path, pixels: np.ndarray, colour: int) -> None:
    """A 16-bit PNG written by hand; `colour` is PNG's colour type."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_grey_is_repeated(tmp_path: Path) -> None:
    pixels = noise(7, 9)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(decoded(tmp_path / "a.png"), np.stack([pixels] * 3, axis=2))


def test_one_bit_is_black_or_white(tmp_path: Path) -> None:
    bits = noise(7, 9) > 127
    Image.fromarray(bits).save(tmp_path / "a.png")
    assert np.array_equal(decoded(tmp_path / "a.png"), np.stack([bits * 255] * 3, axis=2))


@pytest.mark.parametrize("suffix", ["png", "gif", "bmp"])
def test_a_palette_is_looked_up(tmp_path: Path, suffix: str) -> None:
    places, palette = noise(7, 9), noise(256, 3)
    picture = Image.fromarray(places)
    picture.putpalette(palette.tobytes())
    assert picture.mode == "P"
    picture.save(tmp_path / f"a.{suffix}")
    assert np.array_equal(decoded(tmp_path / f"a.{suffix}"), palette[places])


def test_a_clear_entry_of_a_palette_is_white(tmp_path: Path) -> None:
    places, palette = noise(7, 9) % 4, noise(256, 3)
    picture = Image.fromarray(places)
    picture.putpalette(palette.tobytes())
    picture.save(tmp_path / "a.png", transparency=2)
    expected = np.where((places == 2)[..., None], 255, palette[places])
    assert np.array_equal(decoded(tmp_path / "a.png"), expected)


def test_a_palette_with_an_opacity_for_each_entry_is_laid_on_white(tmp_path: Path) -> None:
    places, palette, opacity = noise(7, 9) % 4, noise(256, 3), noise(4)
    picture = Image.fromarray(places)
    picture.putpalette(palette.tobytes())
    picture.save(tmp_path / "a.png", transparency=opacity.tobytes())
    expected = on_white(palette[places], opacity[places])
    assert np.abs(decoded(tmp_path / "a.png") - expected).max() <= 1


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_alpha_is_laid_on_white(tmp_path: Path, suffix: str) -> None:
    pixels = noise(16, 16, 4)
    lossless = {"lossless": True, "exact": True} if suffix == "webp" else {}
    Image.fromarray(pixels).save(tmp_path / f"a.{suffix}", **lossless)
    expected = on_white(pixels[..., :3], pixels[..., 3])
    assert np.abs(decoded(tmp_path / f"a.{suffix}") - expected).max() <= 1


def test_grey_with_alpha_is_laid_on_white(tmp_path: Path) -> None:
    pixels = noise(7, 9, 2)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    expected = on_white(np.stack([pixels[..., 0]] * 3, axis=2), pixels[..., 1])
    assert np.abs(decoded(tmp_path / "a.png") - expected).max() <= 1


def test_the_clear_colour_of_a_picture_without_alpha_is_white(tmp_path: Path) -> None:
    pixels = noise(7, 9, 3)
    pixels[2, 3] = pixels[4, 4] = (1, 2, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png", transparency=(1, 2, 3))
    pixels[2, 3] = pixels[4, 4] = 255
    assert np.array_equal(decoded(tmp_path / "a.png"), pixels)


def test_inks_take_away_light(tmp_path: Path) -> None:
    inks = noise(7, 9, 4)
    Image.frombytes("CMYK", (9, 7), inks.tobytes()).save(tmp_path / "a.tif")
    left = 255 - inks.astype(float)
    expected = left[..., :3] * left[..., 3:] / 255
    assert np.abs(decoded(tmp_path / "a.tif") - expected).max() <= 1


def test_a_jpeg_of_inks_is_not_inverted(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (200, 100, 0, 20)).save(tmp_path / "a.jpg", quality=100)
    expected = np.array([55, 155, 255]) * 235 / 255
    assert np.abs(decoded(tmp_path / "a.jpg") - expected).max() <= 4


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_of_grey_are_scaled(tmp_path: Path, suffix: str) -> None:
    deep = RANDOM.integers(0, 2**16, (7, 9), dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / f"a.{suffix}")
    expected = np.stack([np.rint(deep / 257)] * 3, axis=2)
    assert np.array_equal(decoded(tmp_path / f"a.{suffix}"), expected)


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (6, 4), (4, 2), (0, 1)])
def test_sixteen_bits_a_channel_are_scaled(tmp_path: Path, colour: int, channels: int) -> None:
    deep = RANDOM.integers(0, 2**16, (7, 9, channels), dtype=np.uint16)
    png(tmp_path / "a.png", deep, colour)
    levels = deep / 257
    colours = levels[..., :3] if channels > 2 else np.repeat(levels[..., :1], 3, axis=2)
    clear = channels in (2, 4)
    expected = on_white(colours, levels[..., -1]) if clear else colours
    assert np.abs(decoded(tmp_path / "a.png") - expected).max() <= 2


def test_real_numbers_are_taken_from_0_to_1_and_others_are_refused(tmp_path: Path) -> None:
    levels = RANDOM.random((7, 9)).astype(np.float32)
    Image.fromarray(levels).save(tmp_path / "a.tif")
    expected = np.stack([np.rint(levels.astype(float) * 255)] * 3, axis=2)
    assert np.array_equal(decoded(tmp_path / "a.tif"), expected)
    for number, top in enumerate((255.0, float("nan"))):
        Image.fromarray(levels * np.float32(top)).save(tmp_path / f"b{number}.tif")
    Image.fromarray(np.full((7, 9), 70000, dtype=np.int32)).save(tmp_path / "c.tif")
    paths = sorted(tmp_path.glob("*.tif"))
    with pytest.raises(UserError) as caught:
        check(paths, tmp_path, [path.name for path in paths])
    assert "b0.tif (values beyond 0..1), b1.tif (values beyond 0..1)" in str(caught.value)
    assert "c.tif (values beyond 0..65535)" in str(caught.value)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_every_exif_rotation_is_undone(tmp_path: Path, orientation: int, suffix: str) -> None:
    upright = noise(6, 10, 3)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if suffix == "webp" else {}
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(stored.copy()).save(path, exif=exif, **lossless)
    assert np.array_equal(decoded(path), upright)


def test_the_first_picture_of_an_animation_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert decoded(tmp_path / "a.gif")[4, 4].tolist() == [255, 0, 0]
