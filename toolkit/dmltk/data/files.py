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
WORKERS = min(8, os.cpu_count() or 1)


class Files:
    """Pictures decoded lazily; kept once decoded where the whole split fits 256 MB.

    Args:
        paths: N picture files.
        size: height and width that the pictures are brought to.
    """

    def __init__(self, paths: Sequence[Path], size: int) -> None:
        self.paths = list(paths)
        self.size = size
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
        return Files([self.paths[row] for row in rows], self.size)

    def one(self, row: int) -> Tensor:
        """One picture, decoded: uint8 (3, size, size)."""
        return square(decode(self.paths[row]), self.size)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "kept": {}}


def decode(path: Path) -> Image.Image:
    """The picture as RGB, turned as its EXIF data says; alpha is laid on white."""
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
    """A picture of more than 8 bits a pixel, at 8 bits (Pillow's own conversion clips)."""
    values = np.asarray(picture, dtype=np.float64)
    top = 65535.0 if picture.mode.startswith("I") else 1.0
    levels = np.clip(values / top, 0, 1) * 255
    return Image.fromarray(levels.round().astype(np.uint8)).convert("RGB")


def square(picture: Image.Image, size: int) -> Tensor:
    """The shorter side brought to `size` (bilinear, antialiased), the middle cut out."""
    pixels = functional.pil_to_tensor(picture)
    resized = functional.resize(pixels, [size], antialias=True)
    return functional.center_crop(resized, [size, size])


def check(paths: Sequence[Path], root: Path) -> str:
    """Decode every file once, before any work starts.

    Returns:
        sha256 of the names (relative to `root`) and the contents.

    Raises:
        UserError: some cannot be decoded; all are counted and the first ten named.
    """
    with ThreadPoolExecutor(WORKERS) as pool:
        seen = list(pool.map(examine, paths))
    broken = [path.relative_to(root) for path, mark in zip(paths, seen, strict=True) if not mark]
    if broken:
        named = ", ".join(str(path) for path in broken[:NAMED])
        more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
        raise UserError(
            f"{len(broken)} of {len(paths)} pictures in {root} cannot be read: {named}{more}; "
            f"repair or remove them"
        )
    whole = hashlib.sha256()
    for path, mark in zip(paths, seen, strict=True):
        whole.update(f"{path.relative_to(root).as_posix()}\0{mark}\n".encode())
    return whole.hexdigest()


def examine(path: Path) -> str:
    """sha256 of a picture file, or an empty text where it cannot be decoded."""
    try:
        decode(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except Exception:  # decoders raise all kinds of errors on broken files
        return ""
