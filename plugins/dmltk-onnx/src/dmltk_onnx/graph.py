"""An ONNX file as a module: pictures in, features out, no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from dmltk.errors import UserError, unknown
from torch import Tensor, nn

__all__ = ["Graph"]

TYPES: dict[str, type[np.floating[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
CHANNELS = (1, 3)


@dataclass(frozen=True)
class _Input:
    """What the file asks for; None is free.

    Args:
        name: of the input.
        dtype: of its numbers.
        batch: pictures at once.
        channels: of a picture.
        size: side of a picture.
        is_channels_last: whether pictures are (H, W, C).
    """

    name: str
    dtype: type[np.floating[Any]]
    batch: int | None
    channels: int | None
    size: int | None
    is_channels_last: bool


class Graph(nn.Module):
    """Pictures (N, C, H, W) to what the file's graph gives for them.

    One output comes back as a tensor, several as a dict by their names. A graph of a fixed batch
    is given pictures in batches of that size, the last one filled up with its own first picture.

    Args:
        file: an ONNX file with one input of pictures.
        provider: of onnxruntime, that computes it.

    Attributes:
        differentiable: False: only attacks that need no gradient apply.

    Raises:
        UserError: a file that is not there or broken, an input that is not pictures, or a
            provider that is not installed.
    """

    differentiable = False

    def __init__(self, file: str, provider: str = "CPUExecutionProvider") -> None:
        super().__init__()
        self.file, self.provider = file, provider
        self._open()

    def _open(self) -> None:
        self.session = _session(self.file, self.provider)
        self.input = _input(self.session, self.file)
        self.outputs = [output.name for output in self.session.get_outputs()]

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("session", "input", "outputs")
        return {key: value for key, value in self.__dict__.items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._open()

    def forward(self, pictures: Tensor) -> Tensor | dict[str, Tensor]:
        """Run the graph.

        Args:
            pictures: (N, C, H, W) on any device.

        Returns:
            The outputs on that device, in the pictures' type; none requires a gradient.

        Raises:
            ValueError: pictures of a shape that the graph does not take.
        """
        given = pictures.detach().cpu()
        if self.input.is_channels_last:
            given = given.permute(0, 2, 3, 1)
        array = np.ascontiguousarray(given.numpy(), dtype=self.input.dtype)
        step = self.input.batch or max(len(array), 1)
        parts = [self._run(array[i : i + step], step) for i in range(0, max(len(array), 1), step)]
        found = {
            name: torch.from_numpy(np.concatenate(rows)).to(pictures.device, pictures.dtype)
            for name, rows in zip(self.outputs, zip(*parts, strict=True), strict=True)
        }
        return found if len(found) > 1 else next(iter(found.values()))

    def _run(self, array: Any, step: int) -> list[Any]:
        count = len(array)
        if self.input.batch and count < step:
            array = np.concatenate([array, np.repeat(array[:1], step - count, 0)])
        try:
            found = self.session.run(None, {self.input.name: array})
        except Exception as error:  # onnxruntime's errors have no class in common
            raise ValueError(f"{self.file}: {_line(error)}") from error
        return [rows[:count] for rows in found]


def _session(file: str, provider: str) -> Any:
    if not Path(file).is_file():
        raise UserError(f"there is no ONNX file {file}: give the path of one, onnx:FILE")
    known = onnxruntime.get_available_providers()
    if provider not in known:
        raise unknown("provider", provider, known, "this onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(file, options, providers=[provider])
    except Exception as error:  # onnxruntime's errors have no class in common
        raise UserError(f"{file} cannot be read as ONNX ({_line(error)}): give another file") from (
            error
        )


def _input(session: Any, file: str) -> _Input:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise UserError(f"{file} has {len(inputs)} inputs ({names}): pictures must be the only one")
    (one,) = inputs
    if one.type not in TYPES or len(one.shape) != 4:
        raise UserError(
            f"{file} takes a {one.type} of shape {one.shape}: it must take pictures (N,C,H,W) of"
            " floating-point numbers"
        )
    batch, *shape = (side if isinstance(side, int) and side > 0 else None for side in one.shape)
    last = shape[0] not in CHANNELS and shape[2] in CHANNELS
    channels, height, width = (shape[2], shape[0], shape[1]) if last else shape
    if height != width:
        raise UserError(f"{file} takes pictures of {height} x {width}: they must be square")
    return _Input(one.name, TYPES[one.type], batch, channels, height, last)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
