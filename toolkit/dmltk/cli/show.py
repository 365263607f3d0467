"""``dmltk show``: one registered part in full."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from dmltk.cli.names import Kind


@click.command()
@click.argument("kind", type=Kind())
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(kind: str, name: str, as_json: bool) -> None:
    """Show what a part is, its source and its arguments; a pipeline also as YAML.

    NAME may carry arguments on which the others depend.

    \b
    dmltk show attack mtax
    dmltk show attack stax:solver=pgd
    dmltk show pipeline mdprop
    """
    from dmltk import registry
    from dmltk.description import describe
    from dmltk.spec import parse

    spec = parse(name)
    found = describe(kind, spec.name, registry.given(kind, spec))
    pipeline = registry.build("pipelines", spec) if found.kind == "pipelines" else None
    if as_json:
        extra = {"pipeline": pipeline.to_dict()} if pipeline else {}
        click.echo(json.dumps({**asdict(found), **extra}, indent=1, ensure_ascii=False))
        return
    from dmltk.report.tables import print_description, print_pipeline

    print_description(found)
    if pipeline:
        strategy = registry.build("norms", pipeline.norms)
        mapped = getattr(strategy, "map_routes", None)
        print_pipeline(pipeline, mapped(pipeline.routes) if mapped else {})
