"""Randomness is derived, not stored: every generator comes from the seed and its purpose."""

from __future__ import annotations

import hashlib
import random

import numpy
import torch


def derive(*parts: object) -> int:
    """A 63-bit seed from a seed and what it is for (purpose, epoch, step, branch…)."""
    key = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """A CPU generator for one seed and purpose."""
    return torch.Generator().manual_seed(derive(*parts))


def seed_everything(*parts: object) -> None:
    """Set the global state of Python, numpy and torch (dropout, third-party code)."""
    derived = derive(*parts)
    random.seed(derived)
    numpy.random.seed(derived % 2**32)
    torch.manual_seed(derived)
