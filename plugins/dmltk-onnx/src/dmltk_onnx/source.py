"""The model source ``onnx:FILE``."""

from __future__ import annotations

from typing import Annotated

from dmltk.errors import UserError
from dmltk.models import Source
from msgspec import Meta

from dmltk_onnx.graph import Graph

__all__ = ["onnx"]


def onnx(
    file: str,
    *,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    size: Annotated[int, Meta(ge=0)] = 0,
    provider: str = "CPUExecutionProvider",
) -> Source:
    """An ONNX file: its embeddings, and no gradient of them.

    Attacks that ask for losses alone (`nes`, `square`, `noise`) and transferred ones run against
    it; those that need gradients are refused. A gradient also stops here in training: only a
    head on top (`dim=128`) learns.

    Args:
        file: of a graph with one input, pictures (N,C,H,W) or (N,H,W,C).
        mean: subtracted from pictures in [0, 1], a number per channel; none where the graph does
            that itself.
        std: pictures are divided by it, a number per channel; none where the graph does that.
        size: side of the pictures in pixels; 0 is the graph's own.
        provider: of onnxruntime, that computes it.

    Source: the ONNX format, run by onnxruntime.
    """
    graph = Graph(file, provider)
    channels = graph.input.channels or len(mean) or len(std) or 3
    for name, row in (("mean", mean), ("std", std)):
        if row and len(row) != channels:
            raise UserError(f"{name} has {len(row)} numbers and {file} takes {channels} channels")
    if any(deviation <= 0 for deviation in std):
        raise UserError(f"std={list(std)}: pictures are divided by it, so each must be positive")
    if size and graph.input.size not in (None, size):
        raise UserError(
            f"{file} takes pictures of side {graph.input.size} alone: leave size={size} out"
        )
    return Source(
        graph,
        mean=mean or (0.0,) * channels,
        std=std or (1.0,) * channels,
        size=size or graph.input.size,
    )
