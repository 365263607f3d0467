"""What holds for all tests: hypothesis draws inputs and measures no time; one thread a worker."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

settings.register_profile("dmltk", deadline=None)
settings.load_profile("dmltk")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
