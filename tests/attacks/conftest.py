from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from dmltk import Batch
from torch import Tensor, nn


class Net(nn.Module):
    """A small smooth embedder with batch statistics that counts the pictures it is given."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.bn = nn.BatchNorm2d(8)
            self.fc = nn.Linear(8 * 16, 6)
            nn.init.normal_(self.bn.running_mean, std=0.1)
            nn.init.uniform_(self.bn.running_var, 0.5, 1.5)
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        hidden = torch.tanh(self.bn(self.conv(images)))
        return nn.functional.normalize(self.fc(hidden.flatten(1)), dim=1)


@pytest.fixture
def net() -> Net:
    return Net().eval()


@pytest.fixture
def batch() -> Batch:
    return make(8)


def make(n: int, dtype: torch.dtype = torch.float32, seed: int = 0, classes: int = 4) -> Batch:
    """Pictures (n, 3, 8, 8), a sixth of the pixels at either end of the range, and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(n, 3, 8, 8, dtype=dtype, generator=generator)
    images = (images * 1.5 - 0.25).clamp(0, 1)
    return Batch(images, torch.arange(n) % classes)


@pytest.fixture(name="make")
def make_fixture() -> Callable[..., Batch]:
    return make


@pytest.fixture(name="gen")
def generator() -> Callable[[int], torch.Generator]:
    return lambda seed=0: torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
