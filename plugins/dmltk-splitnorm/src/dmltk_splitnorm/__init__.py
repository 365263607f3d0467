"""A batch norm layer for each set of routes, in place of the model's own: layer surgery."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dmltk.errors import UserError
from dmltk.norms import RoutedEmbedder
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

MAIN = "main"


@dataclass
class Switch:
    """Which set's layers passes go through; all containers of a model look at one.

    Args:
        position: name of the set.
    """

    position: str = MAIN


class Container(nn.Module):
    """Several batch norms where one was.

    Args:
        layers: by set.
        switch: says which of them is used.
    """

    def __init__(self, layers: Mapping[str, nn.Module], switch: Switch) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.switch = switch

    def forward(self, maps: Tensor) -> Tensor:
        """As the batch norm of the set in use."""
        found: Tensor = self.layers[self.switch.position](maps)
        return found


class SplitEmbedder(RoutedEmbedder):
    """An embedder whose batch norms are containers; a route turns the switch.

    Args:
        embedder: with containers.
        routes: route name to set name.
        switch: the containers'.
    """

    def __init__(self, embedder: nn.Module, routes: Mapping[str, str], switch: Switch) -> None:
        super().__init__(embedder, routes)
        self.switch = switch

    def exchange(self, name: str) -> None:
        """Turn the switch to a set, or back."""
        if name != MAIN:
            self.switch.position = MAIN if self.switch.position == name else name

    def merge(self, route: str = MAIN) -> Any:
        """A plain embedder with a route's batch norms in their old places."""
        plain = super().merge(route)
        for path, module in list(plain.named_modules()):
            if isinstance(module, Container):
                _put(plain, path, module.layers[self.routes[route]])
        return plain


@dataclass(frozen=True)
class Split:
    """A batch norm layer of its own for every route, in a container where the model's was.

    The way in which AdvProp's and MDProp's released code does it, where `kway` leaves the layers
    and exchanges their tensors; both compute the same. Attributes of the layer that other code
    looks for (`model.bn1.weight`) are not there while the model has routes.

    Args:
        sets: `kway` for layers of its own for each route, `dual` for two: main's, and those that
            all other routes share.

    Source: Xie et al. 2020, AdvProp, section 3.2 (auxiliary batch norms).
    """

    sets: Literal["kway", "dual"] = "kway"

    def map_routes(self, routes: Sequence[str]) -> dict[str, str]:
        """Each route, `main` first, and its set."""
        names = list(dict.fromkeys((MAIN, *routes)))
        if self.sets == "dual":
            return {name: MAIN if name == MAIN else names[1] for name in names}
        return {name: name for name in names}

    def apply(self, embedder: nn.Module, routes: Sequence[str]) -> SplitEmbedder:
        """The embedder with routes; its batch norms are replaced, in place.

        Args:
            embedder: without routes.
            routes: their names.

        Raises:
            UserError: a model without batch norms, or one that has routes already.
        """
        if any(isinstance(part, RoutedEmbedder) for part in embedder.modules()):
            raise UserError("this model has routes already: start from the plain one, or merge()")
        mapped = self.map_routes(routes)
        found = [(p, m) for p, m in embedder.named_modules() if isinstance(m, _BatchNorm)]
        if not found:
            raise UserError("this model has no batch norm; use --bn kway:layers=ln")
        switch, sets = Switch(), list(dict.fromkeys(mapped.values()))
        for path, layer in found:
            copies = {name: layer if name == MAIN else copy.deepcopy(layer) for name in sets}
            _put(embedder, path, Container(copies, switch).train(layer.training))
        return SplitEmbedder(embedder, mapped, switch)


def _put(model: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, layer)
