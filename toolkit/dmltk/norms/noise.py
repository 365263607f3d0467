"""Noise on the affine part of a new set of normaliser tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from dmltk.errors import UserError, unknown

__all__ = ["DISTRIBUTIONS", "Amount", "Noise", "by_route"]

Amount: TypeAlias = float | str
"""A deviation of a normal, or `distribution:deviation` such as `uniform:.05`."""


def _normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def _uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2 - 1) * math.sqrt(3)


def _laplace(shape: torch.Size, generator: torch.Generator) -> Tensor:
    draws = torch.rand((2, *shape), generator=generator)
    below, above = (1 - draws).log().unbind()
    return (below - above) / math.sqrt(2)


DISTRIBUTIONS = {"normal": _normal, "uniform": _uniform, "laplace": _laplace}
"""Draws with mean 0 and deviation 1, by the distribution's name."""


@dataclass(frozen=True)
class Noise:
    """Independent draws of one distribution.

    Args:
        deviation: standard deviation of every draw.
        distribution: normal, uniform or laplace.
    """

    deviation: float = 0.0
    distribution: str = "normal"

    @classmethod
    def read(cls, amount: float | str) -> Noise:
        """A number is the deviation of a normal; `uniform:.05` names the distribution.

        Raises:
            UserError: an unknown distribution, or a deviation that is no finite number >= 0.
        """
        name, _, number = str(amount).rpartition(":")
        if name and name not in DISTRIBUTIONS:
            raise unknown("distribution", name, DISTRIBUTIONS, "noise")
        try:
            deviation = float(number)
        except ValueError:
            deviation = math.nan
        if not 0 <= deviation < math.inf:
            raise UserError(f"noise={amount}: write a deviation of 0 or more, or uniform:.1")
        return cls(deviation, name or "normal")

    def draw(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Float32 noise of a shape."""
        return self.deviation * DISTRIBUTIONS[self.distribution](shape, generator)


def by_route(
    amount: float | str | Mapping[str, float | str], mapped: Mapping[str, str], main: str
) -> dict[str, Noise]:
    """The noise of each set.

    Args:
        amount: one for every set but main's, or one for each route.
        mapped: each route and its set.
        main: the route and set that stay as they are.

    Raises:
        UserError: a route that is unknown or has the set `main`, or a malformed amount.
    """
    if not isinstance(amount, Mapping):
        return dict.fromkeys(mapped.values(), Noise.read(amount))
    found = dict.fromkeys(mapped.values(), Noise())
    for route, own in amount.items():
        if route not in mapped:
            raise unknown("route", route, mapped, "noise")
        if mapped[route] == main:
            raise UserError(f"noise={route}: the set '{main}' is left as it is")
        found[mapped[route]] = Noise.read(own)
    return found
