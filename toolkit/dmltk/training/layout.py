"""The memory format of a model, measured on the machine where a run leaves it open."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dmltk.attacks.guard import seeded

FORMATS = {"off": torch.contiguous_format, "on": torch.channels_last}
PASSES = 5
MARGIN = 0.05
Measure = Callable[[nn.Module, Tensor], float]


@dataclass(frozen=True)
class Choice:
    """What was chosen for ``channels_last``, and why.

    Args:
        channels_last: ``on`` or ``off``.
        seconds: the median time of a pass by format; infinite where it fails.
        pictures: of a pass.
    """

    channels_last: Literal["on", "off"]
    seconds: dict[str, float]
    pictures: int

    def __str__(self) -> str:
        told = ", ".join(f"{name} {time:.3g} s" for name, time in self.seconds.items())
        return (
            f"channels_last=auto takes {self.channels_last}, and the run keeps to it"
            f" (a pass of {self.pictures} pictures: {told})"
        )


def choose(model: nn.Module, images: Tensor, measure: Measure) -> Choice:
    """The faster memory format; where channels_last gains less than 5 %, it stays off.

    The formats take turns, so that other work on the machine slows both. A copy of the model is
    timed; the model and the random state stay as they are.

    Args:
        model: on the device of the pictures.
        images: a batch as in training.
        measure: gives the seconds of one training pass; infinite where it fails.
    """
    tried = copy.deepcopy(model).train()
    times: dict[str, list[float]] = {name: [] for name in FORMATS}
    with seeded(0):
        for _ in range(1 + PASSES):
            for name, form in FORMATS.items():
                tried.zero_grad(set_to_none=True)
                tried.to(memory_format=form)
                times[name].append(measure(tried, images))
    # the first pass of each warms up
    middle = {name: statistics.median(found[1:]) for name, found in times.items()}
    faster: Literal["on", "off"] = "on" if middle["on"] < (1 - MARGIN) * middle["off"] else "off"
    return Choice(faster, middle, len(images))


def seconds(model: nn.Module, images: Tensor, amp: torch.dtype | None = None) -> float:
    """How long a forward and a backward pass take.

    Args:
        model: whose gradients are left behind.
        images: what it is given.
        amp: the type in which the forward pass is computed.

    Returns:
        Seconds, or infinity where the passes fail: the rehearsal of a step tells why.
    """
    device = images.device
    try:
        _wait(device)
        began = time.perf_counter()
        with torch.autocast(device.type, amp, enabled=amp is not None):
            made = model(images)
        made.sum().backward()
        _wait(device)
    except Exception:
        return math.inf
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
