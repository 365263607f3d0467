"""What the toolkit adds to every model source: heads, weights, the picture's size."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import nn

from dmltk import registry
from dmltk.errors import PluginError, UserError
from dmltk.models.embedder import Embedder
from dmltk.models.source import Pool, Source, bare
from dmltk.models.weights import load

__all__ = ["ModelFactory", "wrap"]

TRAIN_DIM = 128


def _embedded(
    made: Source | Embedder,
    *,
    dim: Annotated[int, Meta(ge=0)] = 0,
    pool: Pool = "avg",
    hidden: Annotated[int, Meta(ge=0)] = 0,
    unit: bool = True,
    output: str = "",
    weights: str = "",
    size: Annotated[int, Meta(ge=0)] = 0,
    seed: int | None = None,
) -> Embedder:
    """What a source made, as an embedder.

    Args:
        dim: length of the embedding; 0 is the pooled feature itself.
        pool: how the feature map is pooled: `avg`, `max`, or `avgmax`, their sum.
        hidden: width of a hidden layer in the head; 0 is none.
        unit: whether embeddings have unit length.
        output: key or position of the feature in what the model returns; empty is all of it.
        weights: a file of weights, or a name that `dmltk data get` knows; empty is none.
        size: side of the pictures in pixels; 0 is the model's own.
        seed: of the first weights; none is torch's global random state.
    """
    head: dict[str, Any] = {"dim": dim, "pool": pool, "hidden": hidden, "unit": unit}
    if isinstance(made, Source):
        sized = replace(made, size=size) if size else made
        embedder = Embedder(sized, output=output, embed=head)
    else:
        embedder = made
        if output:
            raise UserError(f"output={output}: this source makes an embedder, which has one output")
        if head != {"dim": 0, "pool": "avg", "hidden": 0, "unit": True}:
            embedder.set_head("embed", **head)
        if size:
            embedder.source = replace(embedder.source, size=size)
    if weights:
        load(embedder, weights, heads=tuple(embedder.heads), classifier=embedder.source.classifier)
    return embedder


class ModelFactory:
    """A source of models together with the arguments that every source has.

    Args:
        source: a class or function that gives a Source, an Embedder, or a bare module that takes
            pictures in [0, 1].
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.train_dim: int = getattr(source, "train_dim", TRAIN_DIM)
        self.__name__ = getattr(source, "__name__", type(source).__name__)
        self.__doc__ = _documented(inspect.getdoc(source) or "")

    def signature_for(self, given: Mapping[str, Any]) -> inspect.Signature:
        """The source's own parameters, then those of every source that it does not have."""
        own = registry.signature(self.source, given)
        added = [p for name, p in _added().items() if name not in own.parameters]
        return own.replace(parameters=[*own.parameters.values(), *added])

    def __call__(self, *args: Any, **given: Any) -> Embedder:
        """Make the source, the embedder around it, and load its weights."""
        own = registry.signature(self.source, given).parameters
        added = {name: given.pop(name) for name in _added() if name in given and name not in own}
        with _seeded(added.get("seed")):
            made = self.source(*args, **given)
            if not isinstance(made, nn.Module | Source):
                raise PluginError(
                    f"model source '{self.__name__}' gave a {type(made).__name__}:"
                    " it must give a Source, an Embedder or a module"
                )
            known = made if isinstance(made, Source | Embedder) else bare(made)
            return _embedded(known, **added)


def wrap(source: Any) -> ModelFactory:
    """A model source as the registry builds it."""
    return ModelFactory(source)


def _added() -> dict[str, inspect.Parameter]:
    parameters = registry.signature(_embedded).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def _documented(text: str) -> str:
    """The source's docstring with the added arguments at the end of its list."""
    written = (inspect.getdoc(_embedded) or "").partition("Args:\n")[2].rstrip()
    before, args, after = text.partition("Args:\n")
    if not args:
        return f"{text.rstrip()}\n\nArgs:\n{written}\n"
    block, gap, rest = after.partition("\n\n")
    return f"{before}{args}{block.rstrip()}\n{written}\n{gap}{rest}"


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Random numbers of `seed`; torch's global state is as before afterwards."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
