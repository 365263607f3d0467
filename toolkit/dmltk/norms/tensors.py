"""The tensors of normalisers: where they sit, where others wait, and what they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

__all__ = ["Holder", "Slot", "Statistics", "Tables", "with_statistics"]


@dataclass(frozen=True)
class Slot:
    """One private tensor and where it sits; a tied tensor sits in several places.

    Args:
        key: its stock name, such as `layer1.0.bn1.weight`.
        places: path of the module inside the embedder, and the tensor's name there.
        trained: a parameter, not a buffer.
    """

    key: str
    places: tuple[tuple[str, str], ...]
    trained: bool

    @property
    def holder(self) -> str:
        """The key without the tensor's name."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.key.rpartition(".")[2]

    def tensor(self, embedder: nn.Module) -> Tensor:
        """The tensor that sits there now."""
        path, name = self.places[0]
        found: Tensor = Tables(embedder)[path, self.trained][name]
        return found


class Holder(nn.Module):
    """A tree of modules that only hold tensors, by the names of the stock model."""

    def put(self, key: str, tensor: Tensor) -> None:
        """Register a tensor under a dotted key, with the holders on the way to it."""
        holder: nn.Module = self
        *path, name = key.split(".")
        for part in path:
            holder = holder._modules.setdefault(part, Holder())  # type: ignore[assignment]
        Tables(holder)["", isinstance(tensor, nn.Parameter)][name] = tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Statistics:
    """Running statistics as they were when a backward first met them.

    Activation checkpointing runs layers again in backward; what they add to their statistics then
    is taken back.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[list[Tensor], list[int], list[Tensor]]] = {}

    def keep(self, root: nn.Module) -> None:
        """Copy the statistics of the training modules under a root, once each."""
        for module in with_statistics(root):
            buffers = [b for b in module._buffers.values() if b is not None]
            if module.training and id(buffers[0]) not in self._kept:
                versions = [b._version for b in buffers]
                self._kept[id(buffers[0])] = (buffers, versions, [b.clone() for b in buffers])

    def restore(self) -> None:
        """Write back those of the modules that ran again.

        A batch norm's mean and variance change without a new version, its counter does not: one
        changed version speaks for all of a module. Graphs that still hold the statistics stay
        valid, so the versions are left alone.
        """
        for buffers, versions, copies in self._kept.values():
            if any(b._version != v for b, v in zip(buffers, versions, strict=True)):
                for buffer, kept in zip(buffers, copies, strict=True):
                    buffer.data.copy_(kept)


def with_statistics(root: nn.Module) -> Iterator[nn.Module]:
    """The modules that keep running statistics."""
    for module in root.modules():
        if module._buffers.get("running_var") is not None:
            yield module


class Tables(dict[tuple[str, bool], dict[str, Any]]):
    """The dictionaries of parameters (True) and buffers (False) of the modules under a root."""

    def __init__(self, root: nn.Module | None) -> None:
        self.root = root

    def __missing__(self, place: tuple[str, bool]) -> dict[str, Any]:
        path, trained = place
        module: Any = self.root
        for part in path.split(".") if path else ():
            module = module._modules[part]
        self[place] = module._parameters if trained else module._buffers
        return self[place]
