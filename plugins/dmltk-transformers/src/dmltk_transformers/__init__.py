"""Image encoders of Hugging Face transformers as model sources, for dmltk."""

from __future__ import annotations

from dmltk_transformers.source import transformers

__all__ = ["transformers"]
