"""A training method as data: norm strategy, heads, branches, terms. No torch in here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dmltk import convert
from dmltk.errors import UserError
from dmltk.spec import imports

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named projection inside the embedder; `embed` is always there.

    Args:
        pool: how the feature map is pooled.
        dim: output size; 0 is the pooled feature itself.
        hidden: width of one hidden ReLU layer; 0 for none.
        unit: scale embeddings to unit length.
        bn: batch norm before the ReLU.
    """

    pool: Literal["avg", "max", "avgmax"] = "avg"
    dim: Annotated[int, msgspec.Meta(ge=0)] = 0
    hidden: Annotated[int, msgspec.Meta(ge=0)] = 0
    unit: bool = True
    bn: bool = False


class Ramp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A number that moves linearly from one value to another over `steps`, then stays.

    Args:
        start: the first value, written `from`.
        to: the last one.
        steps: optimizer steps between them.
        every: it moves once in so many steps, as stairs.
    """

    start: float = msgspec.field(name="from")
    to: float
    steps: Annotated[int, msgspec.Meta(ge=1)]
    every: Annotated[int, msgspec.Meta(ge=1)] = 1

    def at(self, step: int) -> float:
        """The number at a step, counted from 0."""
        done = max(step, 0) // self.every * self.every
        share = min(done / self.steps, 1.0)
        return self.start + (self.to - self.start) * share


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A loss over named branches.

    Args:
        loss: loss spec.
        of: references: ``branch``, ``branch.head``, either with ``|stop`` (no gradient).
        join: ``each`` sums one value a reference; ``cat`` concatenates embeddings and labels
            to one value; ``args`` hands them over as positional arguments.
        weight: a number or a ramp ``{from, to, steps}``.
        from_step: the first optimizer step in which the term counts.
        labels: ``labels``, ``index``, or a key of the batch's `extra`.
    """

    loss: str
    of: tuple[str, ...]
    join: Literal["each", "cat", "args"] = "each"
    weight: float | Ramp = 1.0
    from_step: Annotated[int, msgspec.Meta(ge=0)] = 0
    labels: str = "labels"

    def weight_at(self, step: int) -> float:
        """The weight at an optimizer step; 0 before `from_step`."""
        if step < self.from_step:
            return 0.0
        if isinstance(self.weight, Ramp):
            return self.weight.at(step - self.from_step)
        return self.weight

    @property
    def references(self) -> tuple[Of, ...]:
        """`of`, read."""
        return tuple(Of.parse(text) for text in self.of)


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One distribution in training: source, then augmentation or attack, then a route.

    Args:
        source: branches whose pictures are taken (concatenated); none is the batch.
        augment: augment spec.
        attack: attack spec; named by its solver where there is an `objective`.
        objective: terms with ``self`` that the attack climbs instead of a goal.
        route: the route its pictures pass through.
        take: the part of the source's rows, as two fractions.
        strength: of an augment that takes one, such as ``views``: a number from 0 to 1, or a ramp.
        ema: embed with the averaged weights, without gradient.
    """

    source: tuple[str, ...] = ()
    augment: str = ""
    attack: str = ""
    objective: tuple[Term, ...] = ()
    route: str = "main"
    take: tuple[float, float] = (0.0, 1.0)
    strength: float | Ramp = 1.0
    ema: bool = False

    def strength_at(self, step: int) -> float:
        """The augment's strength at an optimizer step."""
        return self.strength.at(step) if isinstance(self.strength, Ramp) else self.strength


class Pipeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A whole training method.

    Args:
        norms: norm strategy spec.
        heads: further heads by name (`embed` may be redefined).
        branches: by name, in order.
        terms: what is minimised: the weighted sum.
    """

    branches: dict[str, Branch]
    terms: tuple[Term, ...]
    norms: str = "shared"
    heads: dict[str, Head] = msgspec.field(default_factory=dict)

    @property
    def routes(self) -> list[str]:
        """All routes, `main` first."""
        return list(dict.fromkeys(["main", *(b.route for b in self.branches.values())]))

    def to_dict(self) -> dict[str, Any]:
        """Plain data with defaults left out, in reading order."""
        plain = msgspec.to_builtins(self)
        order = ("norms", "heads", "branches", "terms")
        return {"norms": self.norms} | {key: plain[key] for key in order if key in plain}

    def to_yaml(self) -> str:
        """The pipeline as YAML, which :func:`load` reads back equal."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None, width=100)


class Of(msgspec.Struct, frozen=True):
    """A term's reference: whose embedding, by which head, with gradient or not."""

    branch: str
    head: str = "embed"
    stop: bool = False

    @classmethod
    def parse(cls, text: str) -> Of:
        """Read ``branch[.head][|stop]``."""
        name, bar, mark = text.partition("|")
        if bar and mark != "stop":
            raise UserError(f"reference '{text}': after '|' only 'stop' may stand")
        branch, dot, head = name.partition(".")
        if not _NAME.fullmatch(branch) or (dot and not _NAME.fullmatch(head)):
            raise UserError(f"reference '{text}' is malformed: write branch[.head][|stop]")
        return cls(branch, head or "embed", bool(bar))


def from_dict(data: Mapping[str, Any], where: str = "pipeline") -> Pipeline:
    """A checked Pipeline from plain data (text or numbers).

    Raises:
        UserError: naming the path of what is wrong.
    """
    from dmltk.pipelines.check import check

    pipeline = convert.structure(dict(data), Pipeline, where)
    check(pipeline)
    return pipeline


def from_yaml(text: str, where: str = "pipeline") -> Pipeline:
    """A checked Pipeline from YAML text; every scalar is read as text."""
    return from_dict(read_yaml(text, where), where)


def load(path: str | Path, allow: Sequence[str] = ()) -> Pipeline:
    """A checked Pipeline from a YAML file.

    Args:
        path: the file.
        allow: packages from which the file may name things by import path.
    """
    return from_dict(read_file(path, "pipeline", allow), Path(path).name)


def read_file(path: str | Path, what: str, allow: Sequence[str]) -> dict[str, Any]:
    """A YAML file's mapping of texts; import paths in it are refused unless allowed.

    Args:
        path: the file.
        what: pipeline or config, for the error.
        allow: packages from which the file may name things by import path.

    Raises:
        UserError: no file, not YAML, an import that was not allowed.
    """
    try:
        data = read_yaml(Path(path).read_text("utf-8"), str(path))
    except FileNotFoundError:
        raise UserError(f"there is no {what} file '{path}'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the {what} file '{path}' cannot be read: {error}") from None
    _refuse_imports(data, allow, str(path))
    return data


def _refuse_imports(data: Any, allow: Sequence[str], where: str) -> None:
    if isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            _refuse_imports(item, allow, where)
        return
    for path in imports(data):
        package = path.partition(".")[0]
        if package not in allow:
            raise UserError(
                f"{where} would import '{path}': add --allow-import {package} if you trust it"
            )


def read_yaml(text: str, where: str) -> dict[str, Any]:
    """YAML whose scalars all arrive as text (``8/255`` survives); tags do nothing.

    Raises:
        UserError: not YAML, no mapping, or a key that stands twice.
    """
    import yaml

    def once(loader: Any, node: Any, deep: bool = False) -> dict[str, Any]:
        keys = [loader.construct_object(key, deep=deep) for key, _ in node.value]
        if not all(isinstance(key, str) for key in keys):
            raise UserError(f"{where}: a key must be plain text")
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            line = node.start_mark.line + 1
            raise UserError(f"{where}: the key '{twice[0]}' stands twice (from line {line} on)")
        values = [loader.construct_object(value, deep=True) for _, value in node.value]
        return dict(zip(keys, values, strict=True))

    loader = type("Loader", (yaml.BaseLoader,), {"construct_mapping": once})
    try:
        data = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise UserError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise UserError(f"{where} must be a mapping with the keys of a {where.split('.')[0]}")
    return data
