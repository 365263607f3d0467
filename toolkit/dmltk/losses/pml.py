"""Factories for pytorch-metric-learning's losses, with every argument written out.

That library passes arguments up its class hierarchy by `**kwargs`; here a class's signature is
gathered from the whole hierarchy, so that a misspelt argument is an error and `show` can print
what there is. Miners, reducers, distances and regularizers are named like the losses: the class
name without its last word, in lower case (`MultiSimilarityMiner` is `multisimilarity`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers
from torch import nn

from dmltk import convert
from dmltk.errors import UserError, unknown
from dmltk.losses import corrected, fits
from dmltk.losses.loss import MetricLoss
from dmltk.losses.requirements import LOSSES, Loss, Refused, short_name
from dmltk.spec import Spec, as_spec

Part = str | Spec | nn.Module | None
"""A miner, reducer, distance or regularizer: its spec, itself, or None (`none` in text)."""

Count = Annotated[int, msgspec.Meta(ge=1)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
EMPTY = inspect.Parameter.empty

_MODULES = {
    "miner": miners,
    "reducer": reducers,
    "distance": distances,
    "regularizer": regularizers,
}
_PARTS = {
    "miner": "miner",
    "reducer": "reducer",
    "distance": "distance",
    "regularizer": "regularizer",
    "embedding_regularizer": "regularizer",
    "weight_regularizer": "regularizer",
}
# chosen by the library's subclasses, or no data
_HIDDEN = {
    "self",
    "collect_stats",
    "mat_based_loss",
    "weight_init_func",
    "aggregation_func",
    "is_inverted",
}
_FIXED = {
    "VICRegLoss": {"embedding_regularizer", "embedding_reg_weight"},
    "CosineSimilarity": {"normalize_embeddings"},
    "AvgNonZeroReducer": {"low", "high"},
    "BatchHardMiner": {"pos_strategy", "neg_strategy"},
}
_RENAMED = {
    "ManifoldLoss": {"l": "embedding_size"},
    "P2SGradLoss": {"descriptors_dim": "embedding_size"},
}
_TYPES: dict[str, Any] = {
    "triplets_per_anchor": Count | str,
    "temperature": Rate,
    "n_bins": Count | None,
    "delta": Rate | None,
    "weights": list[float],
    "allowed_pos_range": list[float] | None,
    "allowed_neg_range": list[float] | None,
    **dict.fromkeys(["num_classes", "embedding_size", "K", "num_bins", "pos_per_bin"], Count),
    **dict.fromkeys(["neg_per_bin", "sub_centers", "centers_per_class"], Count),
}
_MEANINGS = """pytorch-metric-learning's {name}.

Args:
    num_classes: number of classes in training; the labels are 0 to num_classes - 1.
    embedding_size: length of an embedding.
    miner: chooses the pairs or triplets looked at, as a spec; none for all.
    reducer: how its losses become one number, as a spec; none for the first named above.
    distance: how embeddings are compared, as a spec; none for the first named above.
    regularizer: of the embeddings, as a spec; another name of embedding_regularizer.
    embedding_regularizer: of the embeddings, as a spec.
    embedding_reg_weight: weight of the embeddings' regularizer.
    weight_regularizer: of the proxies, as a spec.
    weight_reg_weight: weight of the proxies' regularizer.
    margin: how far apart, in the loss's own unit, different classes are asked to be.
    scale: factor of the logits.
    temperature: divisor of the similarities.
    triplets_per_anchor: triplets drawn for an anchor, or all.
    lr: learning rate of the loss's own parameters; none for the model's.
    seed: seed of their first values.
"""


class LibraryLoss:
    """Builds one loss class of pytorch-metric-learning.

    Args:
        cls: the class.
        defaults: defaults that differ from the library's.
        fixed: arguments that are no data and cannot be changed by a spec.
    """

    def __init__(
        self, cls: type[nn.Module], defaults: Mapping[str, Any], fixed: Mapping[str, Any]
    ) -> None:
        self.cls = cls
        self.fixed = fixed
        self.name = short_name(cls.__name__)
        self.requires = required(cls.__name__)
        self.__doc__ = _MEANINGS.format(name=cls.__name__)
        self.__signature__ = self._signature(defaults)
        self.facts = fits.rows(self.requires, defaults)
        if "regularizer" in self.__signature__.parameters:
            of = "weight" if self.requires.owns else "embedding"
            self.facts["regularizers"] = ", ".join(fits.regularizers(self.requires, of))

    def _signature(self, defaults: Mapping[str, Any]) -> inspect.Signature:
        found = parameters(self.cls)
        if self.requires.mined != "nothing":
            found["miner"] = _parameter("miner", None)
        if "embedding_regularizer" in found:
            found["regularizer"] = _parameter("regularizer", None)
        if self.requires.owns:
            found["lr"] = _keyword("lr", None, Rate | None)
            found["seed"] = _keyword("seed", 0, int)
        return inspect.Signature(
            [p.replace(default=defaults.get(name, p.default)) for name, p in found.items()]
        )

    def signature_for(self, given: Mapping[str, object]) -> inspect.Signature:
        """Every argument of the class and of the classes it derives from, by keyword."""
        return self.__signature__

    def __call__(self, **arguments: Any) -> MetricLoss:
        """The loss; arguments as in `signature_for`."""
        bound = self.__signature__.bind(**arguments)
        bound.apply_defaults()
        values = dict(bound.arguments)
        lr, seed = values.pop("lr", None), values.pop("seed", 0)
        miner = part("miner", values.pop("miner", None))
        regularizer = values.pop("regularizer", None)
        if regularizer is not None:
            if values["embedding_regularizer"] is not None:
                raise UserError(
                    f"loss '{self.name}': regularizer and embedding_regularizer are one argument"
                )
            values["embedding_regularizer"] = regularizer
        if values.get("learn_beta") is False:
            values["num_classes"] = None  # one constant boundary: no label is looked up
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            inner = construct(self.cls, {**values, **self.fixed}, f"loss '{self.name}'")
        return MetricLoss(
            inner,
            miner,
            name=self.name,
            lr=lr,
            classes=values.get("num_classes"),
            size=values.get("embedding_size"),
        )


def required(cls: str) -> Loss:
    """The table's entry for a loss that can be used."""
    found = LOSSES[cls]
    if not isinstance(found, Loss):
        raise fits.refusal("loss", cls)
    return found


def pml(cls: str, *, fixed: Mapping[str, Any] | None = None, **defaults: Any) -> LibraryLoss:
    """The factory of a loss class of pytorch-metric-learning.

    Args:
        cls: the class's name.
        fixed: arguments that are no data, passed to the class as they are.
        defaults: defaults that differ from the library's.
    """
    found = getattr(corrected, cls, None) or getattr(losses, cls)
    return LibraryLoss(found, defaults, fixed or {})


def part(kind: str, value: Part) -> nn.Module | None:
    """A miner, reducer, distance or regularizer of pytorch-metric-learning.

    Args:
        kind: `miner`, `reducer`, `distance` or `regularizer`.
        value: its spec, or itself.

    Raises:
        UserError: for an unknown name or argument, naming those there are.
    """
    if value is None or isinstance(value, nn.Module):
        return value
    spec = as_spec(value)
    if spec.name == "none":
        return None
    known = classes(kind)
    if spec.name not in known:
        raise unknown(kind, spec.name, [*fits.names(kind), "none"])
    cls, where = known[spec.name], f"{kind} '{spec.name}'"
    if isinstance(fits.facts_of(cls), Refused):
        raise fits.refusal(kind, cls.__name__)
    signature = inspect.Signature(list(parameters(cls).values()))
    given = dict(spec.kwargs)
    if spec.args:
        first = next(iter(signature.parameters), None)
        if first is None or first in given:
            raise UserError(f"{where}: write its arguments as key=value, each once")
        given[first] = spec.args[0]
    return construct(cls, convert.arguments(signature, given, where, _no_kind), where)


@cache
def classes(kind: str) -> dict[str, type[nn.Module]]:
    """The library's miners, reducers, distances or regularizers by name, ours in their place."""
    return {
        short_name(name): getattr(corrected, name, None) or getattr(_MODULES[kind], name)
        for name in fits.TABLES[kind]
    }


def construct(cls: type[nn.Module], values: Mapping[str, Any], where: str) -> nn.Module:
    """An instance of a library class, its parts built, refusals told in a sentence."""
    own = {ours: theirs for theirs, ours in _RENAMED.get(cls.__name__, {}).items()}
    given = {
        own.get(name, name): part(_PARTS[name], value) if name in _PARTS else value
        for name, value in values.items()
    }
    if "weights" in given:
        given["weights"] = torch.as_tensor(given["weights"])
    fits.check(fits.facts_of(cls), given, where)
    try:
        return cls(**given)
    except (AssertionError, ValueError, TypeError) as error:
        said = str(error) or "it refuses its arguments"
        raise UserError(f"{where} cannot be built so: {said}") from error


def parameters(cls: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Every constructor argument of a library class and of its bases, by keyword."""
    hidden = _HIDDEN | _FIXED.get(cls.__name__, set())
    facts = fits.facts_of(cls)
    hidden |= {key for key in ("distance", "reducer") if not fits.allowed(facts)[key]}
    renamed = _RENAMED.get(cls.__name__, {})
    found: dict[str, inspect.Parameter] = {}
    for name, default in _arguments(cls):
        name = renamed.get(name, name)
        if name not in hidden and name not in found:
            found[name] = _parameter(name, default)
    return found


def _arguments(cls: type[nn.Module]) -> Iterator[tuple[str, Any]]:
    for base in cls.__mro__:
        if "__init__" not in vars(base) or base.__module__.startswith("torch"):
            continue
        for parameter in inspect.signature(base.__init__).parameters.values():  # type: ignore[misc]
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                yield parameter.name, parameter.default


def _parameter(name: str, default: Any) -> inspect.Parameter:
    if name in _PARTS:
        return _keyword(name, default, Part)
    annotation = _TYPES.get(name)
    if annotation is None:
        annotation = _type_of(default)
    elif default is None:
        annotation = annotation | None
    return _keyword(name, default, annotation)


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _type_of(default: Any) -> Any:
    if isinstance(default, bool | str):
        return type(default)
    if default is None:
        return int | float | str | None
    return int | float


def _no_kind(kind: str, value: Any) -> Any:
    raise UserError(f"'{value}' cannot be built here: a part of a loss takes no {kind}")
