"""Which tensors of an embedder are a normaliser's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import timm.layers
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dmltk.errors import UserError
from dmltk.norms.tensors import Slot

__all__ = ["KINDS", "Layers", "Private", "check_activations", "normalizers", "slots"]

Layers = Literal["bn", "ln", "gn", "all"]
Private = Literal["all", "affine", "stats"]


def _of_timm(*beginnings: str) -> tuple[type[nn.Module], ...]:
    found = (value for name, value in vars(timm.layers).items() if name.startswith(beginnings))
    return tuple(value for value in found if isinstance(value, type))


KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "bn": (_BatchNorm,),
    "ln": (nn.LayerNorm, nn.RMSNorm, *_of_timm("LayerNorm", "RmsNorm", "SimpleNorm")),
    "gn": (nn.GroupNorm,),
}
KINDS["all"] = (
    *(kind for kinds in KINDS.values() for kind in kinds),
    _InstanceNorm,
    *_of_timm("EvoNorm", "FilterResponseNorm"),
)


def normalizers(embedder: nn.Module, layers: Layers, heads: bool) -> dict[str, nn.Module]:
    """Normaliser layers that own tensors, by their path.

    Args:
        embedder: where they are looked for.
        layers: which kind.
        heads: whether those inside the embedder's heads count.
    """
    outside = getattr(embedder, "heads", None)
    left_out = set() if heads or outside is None else set(outside.modules())
    return {
        path: module
        for path, module in embedder.named_modules()
        if isinstance(module, KINDS[layers]) and module not in left_out and any(_tensors(module))
    }


def slots(embedder: nn.Module, found: dict[str, nn.Module], private: Private) -> list[Slot]:
    """The private tensors of normaliser layers, tied ones once.

    Args:
        embedder: whose state dict gives the stock names.
        found: normaliser layers by path.
        private: both, or only the parameters, or only the buffers.
    """
    stock: dict[int, str] = {}
    for key, tensor in embedder.state_dict(keep_vars=True).items():
        stock.setdefault(id(tensor), key)
    places: dict[int, list[tuple[str, str]]] = {}
    kinds: dict[int, bool] = {}
    for path, module in found.items():
        for name, tensor, trained in _tensors(module):
            if private == "all" or trained == (private == "affine"):
                places.setdefault(id(tensor), []).append((path, name))
                kinds[id(tensor)] = trained
    return [
        Slot(stock.get(key, ".".join(where[0])), tuple(where), kinds[key])
        for key, where in places.items()
    ]


def check_activations(embedder: nn.Module) -> None:
    """Look for what torch's conversion to SyncBatchNorm makes of timm's norms with an activation.

    Raises:
        UserError: a batch norm holds an activation that it does not call.
    """
    for path, module in embedder.named_modules():
        held = module.children() if type(module) is nn.SyncBatchNorm else ()
        if any(not isinstance(part, nn.Identity) for part in held):
            raise UserError(
                f"batch norm '{path}' lost its activation when torch made it a SyncBatchNorm:"
                " convert a fresh embedder with timm.layers.convert_sync_batchnorm"
            )


def _tensors(module: nn.Module) -> Iterator[tuple[str, Any, bool]]:
    for entries, trained in ((module._parameters, True), (module._buffers, False)):
        for name, tensor in entries.items():
            if tensor is not None:
                yield name, tensor, trained
