"""Which sampler a run asks for, and whether its losses go with it."""

from __future__ import annotations

import itertools

import msgspec

from dmltk import seeds
from dmltk.data.samplers import BalancedBatches, PairBatches
from dmltk.data.split import Split
from dmltk.errors import UserError
from dmltk.training.config import Config
from dmltk.training.parts import Parts

_OF_CLASSES = ("per_class", "with_replacement")


def batches(config: Config, split: Split) -> BalancedBatches | PairBatches:
    """The batches of a run.

    Args:
        config: of the run.
        split: training pictures; pairs that it lists are what `sampler=pairs` goes through.

    Raises:
        UserError: settings, or a split, that the sampler cannot work with.
    """
    seed = seeds.derive(config.seed, "batches")
    if config.sampler == "pairs":
        defaults = {field.name: field.default for field in msgspec.structs.fields(Config)}
        for name in _OF_CLASSES:
            if (given := getattr(config, name)) != defaults[name]:
                raise UserError(
                    f"{name}={str(given).lower()} is for sampler=classes: leave it out with"
                    " sampler=pairs"
                )
        return PairBatches(split.labels, split.pairs, batch=config.batch, seed=seed)
    if split.pairs is not None:
        raise UserError(_NO_NAMES.format(config.dataset))
    return BalancedBatches(
        split.labels,
        batch=config.batch,
        per_class=config.per_class,
        seed=seed,
        with_replacement=config.with_replacement,
    )


def check_losses(config: Config, split: Split, parts: Parts) -> None:
    """Refuse losses that look at other pairs than those which the sampler gives.

    A loss looks at adjacent rows alone where its attribute `pairs` is ``adjacent``.

    Raises:
        UserError: a split that lists pairs under a loss of all pairs, most of which nobody
            compared; or a loss of adjacent rows under batches in which these are always alike.
    """
    climbed = (own.children() for own in parts.objectives.values())
    losses = itertools.chain(parts.losses, *climbed)
    adjacent = [getattr(loss, "pairs", "all") == "adjacent" for loss in losses]
    if split.pairs is not None and not all(adjacent):
        raise UserError(_NO_NAMES.format(config.dataset))
    if config.sampler != "pairs" and any(adjacent):
        raise UserError(
            "a loss of adjacent rows needs --sampler pairs: with sampler=classes neighbours in a"
            " batch are always alike, and pulls alone collapse"
        )


_NO_NAMES = (
    "data set '{}' lists pairs and knows no names, so that nothing is known of other pairs of a"
    " batch: write --sampler pairs --pipeline siamese:pairs=adjacent"
)
