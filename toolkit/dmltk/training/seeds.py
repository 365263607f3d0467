"""Randomness is derived, not stored: every generator comes from the seed and its purpose."""

from __future__ import annotations

import hashlib
import random

import numpy
import torch


def derive(seed: int, *purpose: object) -> int:
    """A 63-bit seed from the run's seed and what it is for (purpose, epoch, step, branch…)."""
    key = "/".join(str(part) for part in (seed, *purpose)).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


def seed_everything(seed: int, *purpose: object) -> None:
    """Set the global state of Python, numpy and torch (dropout, third-party code)."""
    derived = derive(seed, *purpose)
    random.seed(derived)
    numpy.random.seed(derived % 2**32)
    torch.manual_seed(derived)
