"""A small embedder, pictures with labels, and the smallest settings of each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from dmltk import Batch, Reference
from torch import Tensor, nn


class Net(nn.Module):
    """Pictures (N, 3, H, W) -> unit embeddings (N, 6), through batch statistics."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.bn = nn.BatchNorm2d(8)
            self.fc = nn.Linear(8 * 16, 6)
            nn.init.normal_(self.bn.running_mean, std=0.1)
            nn.init.uniform_(self.bn.running_var, 0.5, 1.5)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(self.bn(self.conv(images)))
        return nn.functional.normalize(self.fc(hidden.flatten(1)), dim=1)


@pytest.fixture
def net() -> Net:
    return Net().eval()


def make(n: int, net: nn.Module, dtype: torch.dtype = torch.float32) -> Batch:
    """n pictures of 4 classes that a net embeds where their class is: class centres make sense."""
    draws = torch.Generator().manual_seed(1)
    bases = torch.rand(4, 3, 8, 8, dtype=torch.float64, generator=draws)
    noise = torch.rand(16, 3, 8, 8, dtype=torch.float64, generator=draws) - 0.5
    labels = torch.arange(16) % 4
    images = (bases[labels] * 1.4 - 0.2 + 0.2 * noise).clamp(0, 1).to(dtype)
    weights = next(net.parameters()).dtype
    with torch.no_grad():
        reference = Reference(net(images.to(weights)).to(dtype), labels)
    return Batch(images[:n], labels[:n], torch.arange(n), reference)


@pytest.fixture(name="make")
def make_fixture() -> Callable[..., Batch]:
    return make


@pytest.fixture(name="gen")
def generator() -> Callable[[int], torch.Generator]:
    return lambda seed=0: torch.Generator().manual_seed(seed)


@pytest.fixture(name="channels_last")
def to_channels_last() -> Callable[[Batch], Batch]:
    def change(batch: Batch) -> Batch:
        return replace(batch, images=batch.images.contiguous(memory_format=torch.channels_last))

    return change


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


TINY: dict[str, dict[str, Any]] = {
    "FGSM": {},
    "FFGSM": {},
    "PIFGSM": {"num_iter_set": 2},
    "PIFGSMPP": {"num_iter_set": 2},
    "SPSA": {"nb_sample": 6, "max_batch_size": 4},
    "AutoAttack": {"eps": 0.5},
    "Square": {"n_queries": 10},
    "EADL1": {"max_iterations": 10, "binary_search_steps": 3, "initial_const": 10},
    "EADEN": {"max_iterations": 10, "binary_search_steps": 3, "initial_const": 10},
    "JSMA": {"gamma": 0.02},
    "OnePixel": {"popsize": 4, "steps": 2},
    "Pixle": {"restarts": 1, "max_iterations": 3},
    "GN": {},
}


@pytest.fixture
def tiny() -> Callable[[str], dict[str, Any]]:
    """Arguments with which a class is quick."""
    return lambda name: TINY.get(name, {"steps": 2})
