"""The library's own classes, built and called as its documentation says, for comparison."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

MODULES = {
    "loss": losses,
    "miner": miners,
    "reducer": reducers,
    "distance": distances,
    "regularizer": regularizers,
}
ABSTRACT = {"GenericPairLoss"}
PROXIES, SIZE = 20, 8
VALUES: dict[str, Any] = {
    "num_classes": PROXIES,
    "embedding_size": SIZE,
    "margin": 0.4,
    "Tn": 2,
    "loss": losses.ContrastiveLoss(),
}
THEIRS = {
    "ManifoldLoss": {"embedding_size": "l"},
    "P2SGradLoss": {"embedding_size": "descriptors_dim"},
}
ALSO = {"ManifoldLoss": {"K": 4}, "FastAPLoss": {"num_bins": 2}}
PARTS: dict[str, dict[str, Any]] = {
    "ThresholdReducer": {"low": 0.1},
    "ClassWeightedReducer": {"weights": torch.ones(PROXIES)},
    "SparseCentersRegularizer": {"num_classes": 5, "centers_per_class": 4},
}
LABELS = torch.tensor([0] * 9 + [1] * 7 + [2] * 5 + [3] * 3)
EVEN = torch.arange(4).repeat_interleave(6)


def concrete(module: ModuleType) -> set[str]:
    """The classes of a part of the library that can be used."""
    return {
        name
        for name, cls in vars(module).items()
        if inspect.isclass(cls)
        and issubclass(cls, nn.Module)
        and not name.startswith("Base")
        and name not in ABSTRACT
    }


def needed(name: str, needs: tuple[str, ...]) -> dict[str, Any]:
    """A loss's arguments without a default, as the library calls them."""
    return {THEIRS.get(name, {}).get(key, key): VALUES[key] for key in needs}


def make(kind: str, name: str, needs: tuple[str, ...] = (), **more: Any) -> Any:
    """An instance of a library class."""
    given = {**needed(name, needs), **ALSO.get(name, {}), **PARTS.get(name, {}), **more}
    torch.manual_seed(0)
    return getattr(MODULES[kind], name)(**given)


def unit(rows: int, seed: int = 0, size: int = SIZE) -> Tensor:
    """Unit vectors drawn at random."""
    draws = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(rows, size, generator=draws), dim=1)


def near(size: int = SIZE) -> Tensor:
    """An embedding for each label, no two far apart, of lengths below one."""
    lengths = torch.linspace(0.6, 0.9, len(LABELS))[:, None]
    return lengths * normalize(1 + unit(len(LABELS), size=size), dim=1)


def call(loss: Any, takes: str, z: Tensor, y: Tensor, other: Tensor | None = None) -> Any:
    """A loss of the library on what it takes."""
    torch.manual_seed(0)
    if takes == "views":
        return loss(z, ref_emb=unit(len(z), 9, z.shape[1]) if other is None else other)
    return loss(z) if takes == "pictures" else loss(z, y)


class Sizes(TorchDispatchMode):
    """Records how many numbers the largest tensor made has; marks of one byte are none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor) and tensor.element_size() > 1:
                self.largest = max(self.largest, tensor.numel())
        return made
