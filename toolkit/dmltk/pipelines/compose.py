"""From the flags of ``dmltk run`` to a pipeline; the named methods call the same function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from dmltk import registry
from dmltk.errors import UserError
from dmltk.pipelines.check import check
from dmltk.pipelines.structure import Branch, Pipeline, Term, from_dict, load
from dmltk.spec import parse

LOSS = "multisimilarity"


def compose(
    *,
    attacks: Sequence[str] = (),
    norms: str = "",
    loss: str = LOSS,
    join: Literal["each", "cat"] = "each",
) -> Pipeline:
    """Clean pictures and one branch an attack, one term over all.

    Args:
        attacks: attack specs; each gets a route of its own name (``mtax``, ``mtax2``).
        norms: what routes share; ``kway`` by default where there is an attack.
        loss: loss spec.
        join: one loss value a branch, summed, or one over all embeddings together.
    """
    named = zip(unique_names(attacks, taken=["main"]), attacks, strict=True)
    branches = {name: Branch(attack=attack, route=name) for name, attack in named}
    branches = {"main": Branch(), **branches}
    term = Term(loss=loss, of=tuple(branches), join=join)
    pipeline = Pipeline(branches, (term,), norms or ("kway" if attacks else "shared"))
    check(pipeline)
    return pipeline


def resolve(
    *,
    pipeline: str = "",
    attacks: Sequence[str] = (),
    norms: str = "",
    loss: str = "",
    settings: Iterable[str] = (),
    base: Pipeline | None = None,
    allow: Sequence[str] = (),
) -> Pipeline:
    """The pipeline that the flags of a run mean.

    Args:
        pipeline: a named one with arguments, or a YAML file.
        attacks: ``--attack``, each a branch; excludes `pipeline`.
        norms: ``--bn``.
        loss: ``--loss``.
        settings: ``--set`` texts ``path=value``, paths starting at the pipeline.
        base: a saved one, which the flags change; MDProp″ without one.
        allow: packages from which a file may name things by import path.

    Raises:
        UserError: where they cannot go together.
    """
    if pipeline and attacks:
        raise UserError(
            "--attack adds branches to clean training and cannot go with --pipeline:"
            " leave one out, or change a branch with --set branches.NAME.attack=…"
        )
    if attacks:
        found = compose(attacks=attacks, norms=norms, loss=loss or LOSS)
    elif base is not None and not pipeline:
        found = base
    elif is_file(pipeline):
        found = load(pipeline, allow)
    else:
        found = registry.build("pipelines", pipeline or "mdprop")
    if norms:
        found = msgspec.structs.replace(found, norms=norms)
    if loss:
        found = _with_loss(found, loss)
    data = msgspec.json.decode(msgspec.json.encode(found))
    settings = list(settings)
    for setting in settings:
        _assign(data, setting)
    if settings:
        found = from_dict(data)
    check(found)
    return found


def is_file(pipeline: str) -> bool:
    """Whether ``--pipeline`` means a file: by its ending, or since nothing has that name."""
    if pipeline.endswith((".yaml", ".yml")):
        return True
    return Path(pipeline).is_file() and pipeline not in registry.available("pipelines")


def unique_names(specs: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """A short name for each spec: its own, numbered from 2 on (``mtax``, ``mtax2``).

    A word that is its positional argument belongs to it (``torchattacks-pgd``).
    """
    found: list[str] = []
    for spec in specs:
        asked = parse(spec)
        base = asked.name.rpartition("/")[2].rpartition(":")[2]
        words = [word for word in asked.args if isinstance(word, str) and word.isidentifier()]
        base = "-".join([base, *words]).lower()
        name, number = base, 1
        while name in (*taken, *found):
            number += 1
            name = f"{base}{number}"
        found.append(name)
    return found


def _with_loss(pipeline: Pipeline, loss: str) -> Pipeline:
    if len({term.loss for term in pipeline.terms}) > 1:
        raise UserError(
            f"--loss {loss}: this pipeline has several losses;"
            f" say which with --set terms.0.loss={loss}"
        )
    terms = tuple(msgspec.structs.replace(term, loss=loss) for term in pipeline.terms)
    return msgspec.structs.replace(pipeline, terms=terms)


def _assign(data: dict[str, Any], setting: str) -> None:
    path, equals, value = setting.partition("=")
    if not equals:
        raise UserError(f"--set {setting}: write --set path=value, such as terms.0.weight=.5")
    *parents, last = path.split(".")
    node: Any = data
    for key in parents:
        if not isinstance(node, dict | list):
            raise UserError(f"--set {setting}: '{path}' leads into a plain value")
        here = node
        node = here.setdefault(key, {}) if isinstance(here, dict) else _item(here, key, setting)
    if isinstance(node, list):
        _item(node, last, setting)
        node[int(last)] = _value(value)
    elif isinstance(node, dict):
        node[last] = _value(value)
    else:
        raise UserError(f"--set {setting}: '{path}' leads into a plain value")


def _item(node: Any, key: str, setting: str) -> Any:
    if not isinstance(node, list) or not key.isdigit() or int(key) >= len(node):
        raise UserError(f"--set {setting}: there is no '{key}' in {setting.partition('=')[0]}")
    return node[int(key)]


def _value(text: str) -> Any:
    import yaml

    flow = text.lstrip().startswith(("[", "{"))
    return yaml.load(text, Loader=yaml.BaseLoader) if flow else text
