"""Norm strategies: which tensors are private, and which set each route has."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from dmltk import seeds
from dmltk.errors import UserError
from dmltk.norms.noise import Amount, Noise, by_route
from dmltk.norms.routed import MAIN, RoutedEmbedder
from dmltk.norms.selection import Layers, Private, check_activations, normalizers, slots
from dmltk.norms.tensors import Slot

__all__ = ["Dual", "KWay", "NormStrategy", "Shared"]

FEW = 3
RESET = {"running_mean": 0.0, "running_var": 1.0, "num_batches_tracked": 0.0}
NAMES = {"bn": "batch norm", "ln": "layer norm", "gn": "group norm", "all": "normaliser"}


class NormStrategy(Protocol):
    """Makes a routed embedder; it may also change layers.

    A strategy may have `map_routes(routes)`, route name to set name, for `dmltk show pipeline`.
    """

    dmltk_kind: ClassVar[str] = "norms"

    def apply(self, embedder: nn.Module, routes: Sequence[str]) -> RoutedEmbedder:
        """The embedder with these routes; `main` is always one."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """One set of normaliser tensors for every route.

    Args:
        frozen: running statistics stay as they are in training; the affine part still trains.

    Source: Ioffe and Szegedy 2015, Batch normalization; frozen as in Roth et al. 2020.
    """

    frozen: bool = False

    def map_routes(self, routes: Sequence[str]) -> dict[str, str]:
        """Each route, `main` first, and its set: `main` for all."""
        return dict.fromkeys(_with_main(routes), MAIN)

    def apply(self, embedder: nn.Module, routes: Sequence[str]) -> RoutedEmbedder:
        """The embedder with routes that all mean its own tensors.

        Args:
            embedder: an embedder without routes.
            routes: their names.

        Raises:
            UserError: the embedder has routes already, or a route's name is malformed.
        """
        _convertible(embedder)
        return RoutedEmbedder(embedder, self.map_routes(routes), frozen=self.frozen)


@dataclass(frozen=True, kw_only=True)
class _Private:
    """What strategies with several sets have in common."""

    layers: Layers = "bn"
    private: Private = "all"
    init: Literal["copy", "reset"] = "copy"
    noise: Amount | dict[str, Amount] = 0.0
    heads: bool = True
    frozen: bool = False
    seed: int = 0

    def map_routes(self, routes: Sequence[str]) -> dict[str, str]:
        """Each route, `main` first, and its set."""
        raise NotImplementedError

    def apply(self, embedder: nn.Module, routes: Sequence[str]) -> RoutedEmbedder:
        """The embedder with a set of normaliser tensors for each route that has its own.

        Args:
            embedder: an embedder without routes; it is used, not copied.
            routes: their names; `main` is always one.

        Raises:
            UserError: nothing to select, an embedder that has routes already, or a malformed name.
        """
        _convertible(embedder)
        mapped = self.map_routes(routes)
        others = [name for name in dict.fromkeys(mapped.values()) if name != MAIN]
        noises = self._noises(mapped)
        if not others:
            return RoutedEmbedder(embedder, mapped, frozen=self.frozen)
        found = normalizers(embedder, self.layers, self.heads)
        chosen = slots(embedder, found, self.private)
        if not chosen:
            raise UserError(self._nothing(embedder, bool(found)))
        self._warn(embedder, len(found), chosen)
        sets = {name: self._copy(embedder, chosen, name, noises[name]) for name in others}
        return RoutedEmbedder(embedder, mapped, chosen, sets, frozen=self.frozen)

    def _warn(self, embedder: nn.Module, found: int, chosen: Sequence[Slot]) -> None:
        every = normalizers(embedder, "all", True)
        if found <= FEW and len(every) > found:
            warnings.warn(
                f"only {found} of {len(every)} normaliser layers differ between the routes"
                f" ({NAMES[self.layers]}); layers=all takes every one",
                stacklevel=3,
            )
        own = {id(slot.tensor(embedder)) for slot in chosen}
        means = (getattr(module, "running_mean", None) for module in every.values())
        shared = sum(mean is not None and id(mean) not in own for mean in means)
        if shared and not self.frozen:
            warnings.warn(
                f"{shared} normaliser layers keep one set of running statistics for all routes, so"
                " the batches of every route move main's; frozen=true leaves them as they are",
                stacklevel=3,
            )

    def _noises(self, mapped: dict[str, str]) -> dict[str, Noise]:
        found = by_route(self.noise, mapped, MAIN)
        if self.private == "stats" and any(noise.deviation for noise in found.values()):
            raise UserError("noise is added to the affine part, which private=stats leaves shared")
        return found

    def _copy(
        self, embedder: nn.Module, chosen: Sequence[Slot], name: str, noise: Noise
    ) -> dict[str, Tensor]:
        generator = seeds.generator(self.seed, "noise", name)
        return {
            slot.key: self._born(embedder, slot, noise, generator).requires_grad_(
                slot.tensor(embedder).requires_grad
            )
            for slot in chosen
        }

    def _born(
        self, embedder: nn.Module, slot: Slot, noise: Noise, generator: torch.Generator
    ) -> Tensor:
        tensor = slot.tensor(embedder).detach().clone()
        if slot.trained:
            if noise.deviation:
                tensor += noise.draw(tensor.shape, generator).to(tensor)
            return nn.Parameter(tensor)
        if self.init == "reset" and slot.name in RESET:
            tensor.fill_(RESET[slot.name])
        return tensor

    def _nothing(self, embedder: nn.Module, is_found: bool) -> str:
        command = type(self).__name__.lower()
        what = NAMES[self.layers]
        if is_found:
            part = {"stats": "running statistics", "affine": "affine part"}[self.private]
            use = f"--bn {command}:layers={self.layers}"
            return f"this model's {what}s have no {part}; use {use}"
        for kind in ("bn", "ln", "gn", "all"):
            if normalizers(embedder, kind, True):
                inside = "outside its heads" if kind == self.layers else ""
                use = f"--bn {command}:layers={kind}"
                return " ".join(f"this model has no {what} {inside}".split()) + f"; use {use}"
        return "this model has no normaliser with tensors of its own; use --bn shared"


class Dual(_Private):
    """Two sets of normaliser tensors: one for main, one for every other route.

    Args:
        layers: which normalisers: batch, layer or group norms, or all.
        private: all their tensors, or only the affine part, or only the statistics.
        init: the other set copies main, or copies it and resets the statistics to 0 and 1.
        noise: what is added to the other set's affine part: the deviation of a normal, or
            `uniform:.1` or `laplace:.1` for draws of that deviation; one a route: `[stax=.1]`.
        heads: whether normalisers inside the heads are private too.
        frozen: running statistics stay as they are in training, in both sets; the affine part
            still trains.
        seed: of the noise.

    Source: Xie et al. 2020, AdvProp; MDProp's AdvProp-D.
    """

    def map_routes(self, routes: Sequence[str]) -> dict[str, str]:
        """Each route, `main` first, and its set: `main`, or the first other route's name."""
        names = _with_main(routes)
        return {name: MAIN if name == MAIN else names[1] for name in names}


class KWay(_Private):
    """A set of normaliser tensors of its own for every route.

    Args:
        layers: which normalisers: batch, layer or group norms, or all.
        private: all their tensors, or only the affine part, or only the statistics.
        init: the other sets copy main, or copy it and reset the statistics to 0 and 1.
        noise: what is added to the other sets' affine part: the deviation of a normal, or
            `uniform:.1` or `laplace:.1` for draws of that deviation; one a route: `[stax=.1]`.
        heads: whether normalisers inside the heads are private too.
        frozen: running statistics stay as they are in training, in every set; the affine part
            still trains.
        seed: of the noise.

    Source: MDProp, Algorithm 1.
    """

    def map_routes(self, routes: Sequence[str]) -> dict[str, str]:
        """Each route, `main` first, and its set, of the same name."""
        return {name: name for name in _with_main(routes)}


def _with_main(routes: Sequence[str]) -> list[str]:
    for name in routes:
        if not name or "." in name:
            raise UserError(f"'{name}' is no name for a route: it has a dot or is empty")
    return list(dict.fromkeys((MAIN, *routes)))


def _convertible(embedder: nn.Module) -> None:
    if any(isinstance(module, RoutedEmbedder) for module in embedder.modules()):
        raise UserError("this embedder has routes already; merge one first, or apply once")
    if "_orig_mod" in embedder._modules:
        raise UserError("this embedder is compiled already; give it routes first, then compile it")
    check_activations(embedder)
