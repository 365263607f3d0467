"""Embedders as ONNX files, for dmltk: a black-box source of models, and an export."""

from __future__ import annotations

from dmltk_onnx.source import onnx
from dmltk_onnx.write import export

__all__ = ["export", "onnx"]
