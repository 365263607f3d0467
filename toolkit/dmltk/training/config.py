"""Everything that decides a run, as one frozen structure that is saved and read back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dmltk import convert
from dmltk.pipelines.check import check
from dmltk.pipelines.structure import Pipeline, read_file

ATTACKS = (
    "stax:solver=pgd,steps=20,gain=1,start=0,select=last",
    "mtax:targets=5,solver=pgd,steps=20,gain=1,start=0,select=last",
)
Count = Annotated[int, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(ge=0)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run: what is trained how, and how it is judged.

    Args:
        pipeline: the method.
        dataset: data set spec.
        model: model spec.
        size: picture size in pixels; 0 takes the data set's, the model's, or 64.
        batch: pictures a batch.
        per_class: pictures of each class in a batch.
        with_replacement: draw classes and pictures with replacement (Roth et al.).
        sampler: what a batch is made of: ``classes`` with `per_class` pictures each, or ``pairs``
            in adjacent rows: half of them like where they are drawn from labels, the listed ones
            where the data set lists pairs. With pairs, `per_class` and `with_replacement` have
            no meaning and keep their defaults.
        augment: what every training picture goes through before the branches; augment spec.
        features: safetensors file with a row of ``features`` for each training picture, whose
            k-means clusters are the labels ``clustersN`` of terms; the model's own at the start
            where none is given.
        workers: processes that decode pictures ahead; the batches are the same for any number.
        epochs: passes over the training split.
        steps: optimizer steps, instead of epochs; 0 leaves it to `epochs`.
        optimizer: ``adam``, ``sgd``, or ``lars`` (SGD with a rate a layer, for large batches).
        momentum: of sgd and lars.
        lr: learning rate.
        head_lr: learning rate of the heads; 0 is `lr`.
        route_lr: learning rates of single routes' own normalisers, by route.
        weight_decay: on everything but the losses' own parameters.
        warmup: optimizer steps of linear warm-up.
        schedule: of the learning rate after the warm-up: ``cosine`` decay to 0, or ``constant``.
        clip: largest norm of the whole gradient; 0 does not clip.
        amp: ``bf16`` computes training passes in bfloat16; attacks and losses stay in float32.
        patience: stop after so many epochs without a better recall@1 on the validation
            classes; 0 trains on.
        diagnose: follow distances, pairs past the margin, flat units; the log tells, and warns.
        ema: decay of the averaged weights, where a branch asks for them.
        eps: bound of attacks that name none, pixel units in [0, 1].
        eval_attacks: attack specs the trained model is judged by.
        protocols: protocol specs.
        metrics: metric specs.
        limit: how many test pictures are attacked; 0 for all.
        seed: of everything.
        seeds: several, each a run of its own in a sub-folder; `seed` is not used then.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        channels_last: ``on`` keeps weights and feature maps in that memory format: faster for
            some models (EfficientNets on a CPU: twice), slower for others. ``auto`` times a few
            passes in both at the start and keeps to the faster; what it took is saved in place of
            ``auto``. The last bits of a figure hang on the format, and a choice by the clock may
            fall differently on the same machine an hour later: so ``off`` is the default, that
            the same command gives the same figures.
    """

    pipeline: Pipeline
    dataset: str = "glyphs"
    model: str = "smallconv"
    size: Count = 0
    batch: Annotated[int, msgspec.Meta(ge=2)] = 112
    per_class: Annotated[int, msgspec.Meta(ge=1)] = 2
    with_replacement: bool = False
    sampler: Literal["classes", "pairs"] = "classes"
    augment: str = ""
    features: str = ""
    workers: Count = 0
    epochs: Count = 15
    steps: Count = 0
    optimizer: Literal["adam", "sgd", "lars"] = "adam"
    momentum: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.9
    lr: Rate = 2e-3
    head_lr: Rate = 0.0
    route_lr: dict[str, Rate] = {}
    weight_decay: Rate = 4e-4
    warmup: Count = 20
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: Rate = 0.0
    amp: Literal["off", "bf16"] = "off"
    patience: Count = 0
    diagnose: bool = False
    ema: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.999
    eps: Annotated[float, msgspec.Meta(ge=0, le=1)] = 8 / 255
    eval_attacks: tuple[str, ...] = ATTACKS
    protocols: tuple[str, ...] = ("clean", "query", "all")
    metrics: tuple[str, ...] = ("recall", "map@r", "nmi", "pi_ratio", "spectrum")
    limit: Count = 0
    seed: Count = 0
    seeds: tuple[Count, ...] = ()
    device: str = "auto"
    channels_last: Literal["auto", "on", "off"] = "off"

    def specs(self) -> Iterator[tuple[str, str]]:
        """Every spec in it with its kind."""
        pipeline = self.pipeline
        yield from (("datasets", self.dataset), ("models", self.model), ("norms", pipeline.norms))
        terms = [*pipeline.terms, *(t for b in pipeline.branches.values() for t in b.objective)]
        yield from (("losses", term.loss) for term in terms)
        for branch in pipeline.branches.values():
            yield from (("attacks", branch.attack),) if branch.attack else ()
            yield from (("augments", branch.augment),) if branch.augment else ()
        yield from (("augments", self.augment),) if self.augment else ()
        yield from (("attacks", spec) for spec in self.eval_attacks)
        yield from (("protocols", spec) for spec in self.protocols)
        yield from (("metrics", spec) for spec in self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the pipeline with its defaults left out."""
        return {**msgspec.to_builtins(self), "pipeline": self.pipeline.to_dict()}

    def to_yaml(self) -> str:
        """What ``config.yaml`` holds."""
        import yaml

        plain = msgspec.json.decode(msgspec.json.encode(self.to_dict()))
        return yaml.safe_dump(plain, sort_keys=False, width=100)


def from_dict(data: dict[str, Any], where: str = "config") -> Config:
    """A checked Config from plain data (text or numbers).

    Raises:
        UserError: naming the path of what is wrong.
    """
    config = convert.structure(data, Config, where)
    check(config.pipeline)
    return config


def load(path: str | Path, allow: Sequence[str] = ()) -> Config:
    """A run's saved configuration.

    Args:
        path: a YAML file.
        allow: packages from which the file may name things by import path.

    Raises:
        UserError: no file, not YAML, unknown keys, an import that was not allowed.
    """
    return from_dict(read_file(path, "config", allow), Path(path).name)
