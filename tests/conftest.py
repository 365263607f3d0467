"""What holds for all tests: hypothesis draws inputs and measures no time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("dmltk", deadline=None)
settings.load_profile("dmltk")
