"""Pictures in files: found, checked in one pass, decoded when they are read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.v2 import functional

from dmltk.errors import UserError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"})
CLEAR = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
KEPT = 2**28
NAMED = 10
Box = tuple[int, int, int, int]
WORKERS = min(8, os.cpu_count() or 1)


class Files:
    """Pictures decoded lazily; kept once decoded where the whole split fits 256 MB.

    Args:
        paths: N picture files.
        size: height and width that the pictures are brought to.
        boxes: the part of each picture that counts, or None for all of it.
    """

    def __init__(
        self, paths: Sequence[Path], size: int, boxes: Sequence[Box | None] | None = None
    ) -> None:
        self.paths = list(paths)
        self.size = size
        self.boxes = list(boxes) if boxes is not None else [None] * len(self.paths)
        self.keep = len(self.paths) * 3 * size * size <= KEPT
        self.kept: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: Sequence[int]) -> Tensor:
        found = {row: self.kept[row] for row in rows if row in self.kept}
        missing = [row for row in dict.fromkeys(rows) if row not in found]
        if missing:
            with ThreadPoolExecutor(min(WORKERS, len(missing))) as pool:
                found |= zip(missing, pool.map(self.one, missing), strict=True)
            if self.keep:
                self.kept |= found
        if not found:
            return torch.empty(0, 3, self.size, self.size, dtype=torch.uint8)
        return torch.stack([found[row] for row in rows])

    def subset(self, rows: Sequence[int]) -> Files:
        boxes = [self.boxes[row] for row in rows]
        return Files([self.paths[row] for row in rows], self.size, boxes)

    def one(self, row: int) -> Tensor:
        """One picture, decoded: uint8 (3, size, size)."""
        return square(decode(self.paths[row], self.boxes[row]), self.size)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "kept": {}}


def decode(path: Path, box: Box | None = None) -> Image.Image:
    """The picture as RGB, turned as its EXIF data says; alpha is laid on white.

    Args:
        path: a picture file.
        box: left, top, right and bottom of the part that is wanted, in the upright picture.

    Raises:
        UserError: the box reaches beyond the picture, or its values beyond what is known of
            their kind.
    """
    whole = colours(path)
    if box is None:
        return whole
    if box[2] > whole.width or box[3] > whole.height:
        raise UserError(f"box beyond {whole.width}×{whole.height} pixels")
    return whole.crop(box)


def colours(path: Path) -> Image.Image:
    """The whole picture as upright RGB."""
    with Image.open(path) as picture:
        upright = ImageOps.exif_transpose(picture)
        if upright.mode.startswith("I") or upright.mode == "F":
            return narrow(upright)
        if "transparency" in upright.info or upright.mode in CLEAR:
            clear = upright.convert("RGBA")
            white = Image.new("RGBA", clear.size, "white")
            return Image.alpha_composite(white, clear).convert("RGB")
        return upright.convert("RGB")


def narrow(picture: Image.Image) -> Image.Image:
    """A picture of more than 8 bits a pixel, at 8 bits (Pillow's own conversion clips).

    Integers are taken as 0..65535, real numbers as 0..1.
    """
    values = np.asarray(picture, dtype=np.float64)
    top = 65535.0 if picture.mode.startswith("I") else 1.0
    if not (values.min() >= 0 and values.max() <= top):
        raise UserError(f"values beyond 0..{top:.0f}")
    return Image.fromarray((values / top * 255).round().astype(np.uint8)).convert("RGB")


def square(picture: Image.Image, size: int) -> Tensor:
    """The shorter side brought to `size` (bilinear, antialiased), the middle cut out."""
    pixels = functional.pil_to_tensor(picture)
    resized = functional.resize(pixels, [size], antialias=True)
    return functional.center_crop(resized, [size, size])


def check(
    paths: Sequence[Path],
    where: Path,
    names: Sequence[str],
    boxes: Sequence[Box | None] | None = None,
) -> list[str]:
    """Decode every file once, before any work starts.

    Args:
        paths: N picture files.
        where: the folder or the list that names them, for the error.
        names: how each picture is called in the error.
        boxes: the part of each picture that counts, or None for all of it.

    Returns:
        sha256 of each file's contents.

    Raises:
        UserError: some cannot be decoded; all are counted and the first ten named.
    """
    parts = boxes if boxes is not None else [None] * len(paths)
    with ThreadPoolExecutor(WORKERS) as pool:
        seen = list(pool.map(examine, paths, parts))
    broken = [
        f"{name} ({fault})" if fault else name
        for name, (mark, fault) in zip(names, seen, strict=True)
        if not mark
    ]
    if broken:
        raise UserError(
            f"{len(broken)} of {len(paths)} pictures in {where} cannot be read: {some(broken)}; "
            f"repair or remove them"
        )
    return [mark for mark, _ in seen]


def check_apart(
    paths: Sequence[Path], names: Sequence[str], parts: Sequence[str], boxes: Sequence[Box | None]
) -> None:
    """Refuse a picture that is a query and in the gallery too: the query would find itself.

    Args:
        paths: N picture files.
        names: how each picture is called in the error.
        parts: each picture's split.
        boxes: the part of each picture that counts, or None for all of it.

    Raises:
        UserError: some are; all are counted and the first ten named.
    """
    seen = [(os.path.realpath(path), box) for path, box in zip(paths, boxes, strict=True)]
    held = {mark for mark, part in zip(seen, parts, strict=True) if part == "gallery"}
    both = [
        name
        for mark, name, part in zip(seen, names, parts, strict=True)
        if part == "query" and mark in held
    ]
    if both:
        raise UserError(
            f"{len(both)} queries are in the gallery too and would find themselves: {some(both)}; "
            f"remove them from either, or call both splits 'test'"
        )


def examine(path: Path, box: Box | None) -> tuple[str, str]:
    """sha256 of a picture file, or an empty text and, where it is known, what is wrong."""
    try:
        decode(path, box)
        return hashlib.sha256(path.read_bytes()).hexdigest(), ""
    except FileNotFoundError:
        return "", "missing"
    except UserError as error:
        return "", str(error)
    except Exception:  # decoders raise all kinds of errors on broken files
        return "", ""


def some(names: Sequence[str]) -> str:
    """The first ten names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def fingerprint(names: Sequence[str], marks: Sequence[str]) -> str:
    """sha256 of what pictures are called and of what they hold."""
    whole = hashlib.sha256()
    for name, mark in zip(names, marks, strict=True):
        whole.update(f"{name}\0{mark}\n".encode())
    return whole.hexdigest()
