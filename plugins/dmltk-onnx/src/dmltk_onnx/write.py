"""An embedder written as an ONNX file."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from pathlib import Path

import torch
from dmltk.atomic import replacing
from dmltk.errors import DmltkError, UserError
from dmltk.models import Embedder
from dmltk.models.source import device_of, dtype_of, evaluating
from dmltk.norms import RoutedEmbedder
from torch import Tensor

from dmltk_onnx.graph import Graph

__all__ = ["export"]

NEEDS = ("onnx", "onnxscript")
CHECKED = 3
TOLERANCE = 1e-4


def export(
    embedder: Embedder | RoutedEmbedder, file: str | Path, *, route: str = "main", size: int = 0
) -> None:
    """Write an embedder as an ONNX file: pictures in [0, 1] to the embeddings of `embed`.

    The file holds the weights of one route in eval mode, and the normalisation of pictures. It
    is run once by onnxruntime and compared before it takes its name.

    Args:
        embedder: with routes or without; it is left as it was.
        file: where to.
        route: which of the routes.
        size: side of the pictures in pixels; 0 is the embedder's own.

    Raises:
        UserError: what writing needs is not installed, or the size is not known.
        DmltkError: the model cannot be exported, or the file embeds otherwise (by more than
            1e-4).
    """
    missing = [need for need in NEEDS if importlib.util.find_spec(need) is None]
    if missing:
        raise UserError(
            f"writing ONNX needs {missing[0]}: run pip install 'dmltk-onnx[export]' first"
        )
    plain = embedder.merge(route) if isinstance(embedder, RoutedEmbedder) else embedder
    side = size or plain.size
    if not side:
        raise UserError("this embedder takes pictures of any size: say of which, with size=…")
    shape = (CHECKED, plain.mean.shape[1], side, side)
    draws = torch.Generator().manual_seed(0)
    pictures = torch.rand(shape, generator=draws).to(device_of(plain), dtype_of(plain))
    with evaluating(plain), replacing(Path(file)) as aside:
        wanted = plain(pictures)
        _write(plain, pictures, aside)
        _compare(aside, pictures, wanted)


def _write(plain: Embedder, pictures: Tensor, file: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                plain,
                (pictures,),
                str(file),
                input_names=["pictures"],
                output_names=["embeddings"],
                dynamic_shapes=({0: batch},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # whatever a model does that cannot be traced
        line = str(error.__cause__ or error).strip().splitlines()
        raise DmltkError(
            f"this model cannot be written as ONNX: {line[0] if line else type(error).__name__}"
        ) from error
    finally:
        noisy.setLevel(level)


def _compare(file: Path, pictures: Tensor, wanted: Tensor) -> None:
    found = Graph(str(file))(pictures)
    assert isinstance(found, Tensor)
    apart = (found - wanted).abs().max().item()
    if not apart <= TOLERANCE:
        raise DmltkError(
            f"the ONNX file's embeddings differ from the model's by {apart:.1e}, more than"
            f" {TOLERANCE:.0e}: it is not kept"
        )
