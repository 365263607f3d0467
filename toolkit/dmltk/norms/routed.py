"""Several sets of normaliser tensors in one embedder, and passes that choose among them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.variable import Variable

from dmltk.errors import DmltkError, unknown
from dmltk.norms.selection import check_activations
from dmltk.norms.tensors import Holder, Slot, Statistics, Tables, with_statistics

__all__ = ["MAIN", "RouteView", "RoutedEmbedder"]

MAIN = "main"
INNER = "embedder."


@dataclass
class _Backward:
    """What a backward pass that met a route has to put back."""

    active: str | None
    statistics: Statistics


class RoutedEmbedder(nn.Module):
    """An embedder whose normalisers have one set of tensors for each route.

    No layer is replaced: a pass exchanges the tensors in the modules' dictionaries with those of
    its route's set, and remembers the route until its backward is done.

    Args:
        embedder: the embedder; its own tensors are the set `main`.
        routes: route name to set name; `main` is among them.
        slots: the private tensors.
        sets: for each set but `main`, its tensors by the slots' keys.
        frozen: normalisers with running statistics stay in eval mode, in every set.
    """

    def __init__(
        self,
        embedder: nn.Module,
        routes: Mapping[str, str],
        slots: Sequence[Slot] = (),
        sets: Mapping[str, Mapping[str, Tensor]] | None = None,
        *,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.routes = dict(routes)
        self.slots = tuple(slots)
        self.frozen = frozen
        self._tied = [slot for slot in self.slots if len(slot.places) > 1]
        self._swaps: dict[tuple[str, str, bool], list[tuple[str, str]]] = {}
        for slot in self.slots:
            path, name = slot.places[0]
            swaps = self._swaps.setdefault((slot.holder, path, slot.trained), [])
            swaps.append((slot.name, name))
        self.sets = Holder()
        for name, tensors in (sets or {}).items():
            for key, tensor in tensors.items():
                self.sets.put(f"{name}.{key}", tensor)
        self._active: str | None = None
        self._installed = MAIN
        self._backward: dict[int, _Backward] = {}
        self.training = embedder.training
        self._freeze()

    @property
    def size(self) -> int | None:
        """Side of the pictures the embedder was made for, None for any."""
        return self.embedder.size  # type: ignore[return-value]

    @property
    def embedding_size(self) -> int:
        """Length of an embedding of `embed`."""
        return self.embedder.embedding_size  # type: ignore[return-value]

    @property
    def num_features(self) -> int:
        """Length of the pooled feature."""
        return self.embedder.num_features  # type: ignore[return-value]

    def forward(
        self, images: Tensor, route: str | None = None, heads: Sequence[str] | None = None
    ) -> Any:
        """One pass through a route.

        Args:
            images: (N, C, H, W) in [0, 1].
            route: None is the active route; outside any it is `main`.
            heads: as the embedder takes them.

        Returns:
            What the embedder gives.
        """
        self._heal()
        name = route if route is not None else (self._active or MAIN)
        with self.route(name):
            given = self.embedder(images) if heads is None else self.embedder(images, heads=heads)
        outputs = given.values() if isinstance(given, dict) else (given,)
        for output in outputs:
            if output.grad_fn is not None:
                output.grad_fn.register_prehook(self._reached(name))
        return given

    @contextmanager
    def route(self, name: str) -> Iterator[None]:
        """Within it, that route's tensors are in the modules; contexts nest.

        Raises:
            UserError: unknown route.
        """
        self._known(name)
        self._heal()
        before = self._active
        self._activate(name)
        try:
            yield
        finally:
            self._heal()
            self._activate(before)

    def at(self, route: str, heads: Sequence[str] | None = None) -> RouteView:
        """The route as a module of its own, which holds this one.

        Args:
            route: its name.
            heads: names of heads; with them the module gives a dict.
        """
        return RouteView(self, self._known(route), heads)

    def merge(self, route: str = MAIN) -> Any:
        """A plain, independent embedder with a route's tensors and stock keys."""
        self._at_home("merge")
        modes = [part.training for part in self.embedder.modules()]
        # some models (levit) keep tensors of a graph in eval mode, and drop them in train()
        self.embedder.train()
        with self.route(route):
            plain = copy.deepcopy(self.embedder)
        for module in (self.embedder, plain):
            for part, mode in zip(module.modules(), modes, strict=True):
                part.training = mode
        return plain

    def train(self, mode: bool = True) -> RoutedEmbedder:
        """As of any module; with `frozen` normalisers keep their running statistics."""
        super().train(mode)
        self._freeze()
        return self

    def _freeze(self) -> None:
        for module in with_statistics(self.embedder) if self.frozen else ():
            module.training = False

    def _known(self, route: str) -> str:
        if route not in self.routes:
            raise unknown("route", route, self.routes)
        return route

    def _activate(self, route: str | None) -> None:
        self._active = route
        wanted = self.routes[route or MAIN]
        if wanted != self._installed:
            self.exchange(self._installed)
            self._installed = MAIN
            self.exchange(wanted)
            self._installed = wanted

    def exchange(self, name: str) -> None:
        """Swap a set in, or out again: the modules' tensors with those that its holder has now.

        A strategy that changed layers may have its own here.

        Args:
            name: of the set; `main` is what is there without a swap.
        """
        if name == MAIN:
            return
        ours, theirs = Tables(self.embedder), Tables(self.sets._modules[name])
        for (holder, path, trained), names in self._swaps.items():
            kept, used = theirs[holder, trained], ours[path, trained]
            for there, here in names:
                kept[there], used[here] = used[here], kept[there]
        for slot in self._tied:
            (path, name), *others = slot.places
            for twin, here in others:
                ours[twin, slot.trained][here] = ours[path, slot.trained][name]

    def _reached(self, route: str) -> Callable[[Any], None]:
        """What runs when backward reaches a pass: its route is active until backward ends."""

        def install(_: Any) -> None:
            task = torch._C._current_graph_task_id()
            if task not in self._backward:
                self._backward[task] = _Backward(self._active, Statistics())
                Variable._execution_engine.queue_callback(lambda: self._finish(task))
            self._activate(route)
            self._backward[task].statistics.keep(self.embedder)

        return install

    def _finish(self, task: int) -> None:
        backward = self._backward.pop(task)
        backward.statistics.restore()
        self._activate(backward.active)

    def _heal(self) -> None:
        """Put back what a backward that died has left."""
        if self._backward and torch._C._current_graph_task_id() == -1:
            for task in sorted(self._backward, reverse=True):
                self._finish(task)

    def _at_home(self, what: str) -> None:
        self._heal()
        if self._active is not None:
            raise DmltkError(
                f"{what} within route '{self._active}' would mix its tensors with main's:"
                " leave the route's context first"
            )

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._at_home("moving or converting the embedder")
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        self._at_home("a copy")
        return super().__getstate__()

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """As of any module; conversions of layers put the embedder back with it.

        Raises:
            UserError: the conversion lost activations.
        """
        super().add_module(name, module)
        check_activations(self.embedder)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module: the embedder's own keys, and `sets.…` for the other sets."""
        self._at_home("a state dict")
        found = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        for entries in (found, getattr(found, "_metadata", {})):
            for key in [key for key in entries if key.startswith(prefix)]:
                stock = key.removeprefix(prefix).removeprefix(INNER)
                entries[prefix + stock] = entries.pop(key)
        return found

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        self._at_home("loading a state dict")
        for key in [key for key in state_dict if key.startswith(prefix)]:
            stock = key.removeprefix(prefix)
            if not stock.startswith("sets."):
                state_dict[prefix + INNER + stock] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class RouteView(nn.Module):
    """One route of a routed embedder, as a module.

    Args:
        routed: the routed embedder, a sub-module of this one.
        route: the route's name.
        heads: names of heads, None for `embed` alone.
    """

    def __init__(
        self, routed: RoutedEmbedder, route: str, heads: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.routed = routed
        self.route = route
        self.heads = None if heads is None else tuple(heads)
        self.training = routed.training

    def forward(self, images: Tensor) -> Any:
        """Pictures to embeddings, or with heads to a dict of them."""
        return self.routed(images, route=self.route, heads=self.heads)
