"""``dmltk plan``: what a training will see, before it."""

from __future__ import annotations

import json
from typing import Any

import click

from dmltk.cli.names import Named


@click.command()
@click.option("--dataset", type=Named("datasets"), help="Data set (default glyphs).")
@click.option("--size", help="Picture size in pixels (default: the data set's).")
@click.option("--sampler", help="classes or pairs: what a batch is made of (default classes).")
@click.option("--batch", help="Pictures a batch (default 112).")
@click.option("--per-class", help="Pictures of each class in a batch (default 2).")
@click.option("--with-replacement", is_flag=True, help="Draw batches with replacement (Roth).")
@click.option("--epochs", help="Passes over the training split (default 15).")
@click.option("--seed", help="Seed of everything (default 0).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(as_json: bool, **flags: Any) -> None:
    """Tell what a training will see: pairs, how many are visited, cost, contradictory labels.

    The flags are those of ``dmltk run``, and so are their defaults; nothing is trained.

    \b
    dmltk plan --dataset shapes --batch 24 --per-class 8 --epochs 40
    """
    import msgspec

    from dmltk.pipelines import build
    from dmltk.report.tables import print_plan
    from dmltk.training.config import from_dict
    from dmltk.training.plan import plan as planned

    given = {name: value for name, value in flags.items() if value not in (None, False)}
    found = planned(from_dict({"pipeline": msgspec.to_builtins(build("st")), **given}))
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    print_plan(found)
