"""A norm strategy for dmltk."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from dmltk import norms
from dmltk.norms import RoutedEmbedder


@dataclass(frozen=True)
class Example:
    """Two sets of every normaliser: routes main and stax share one, all others the second.

    Args:
        first: the route beside main that shares its set.

    Source: name the paper here.
    """

    first: str = "stax"

    def apply(self, embedder: nn.Module, routes: Sequence[str]) -> RoutedEmbedder:
        """The embedder with these routes; `main` is always one.

        Args:
            embedder: without routes.
            routes: their names.
        """
        others = [route for route in routes if route not in ("main", self.first)]
        made = norms.apply("dual:layers=all", embedder, others)
        if self.first in routes:
            made.routes[self.first] = "main"
        return made
