"""``dmltk data``: fetch data sets and weights, and look at them."""

from __future__ import annotations

import json

import click

from dmltk.cli.names import Named


@click.group()
def data() -> None:
    """Fetch data sets and weights by name; look at a data set.

    \b
    dmltk data get emoji
    dmltk data info glyphs
    """


@data.command()
@click.argument("name")
def get(name: str) -> None:
    """Fetch NAME into the cache: the only command that reaches out.

    NAME is emoji, fashion-mnist, lite0, lite1 or lite2.

    \b
    dmltk data get emoji
    dmltk data get lite0
    """
    from dmltk.data import catalogue

    click.echo(str(catalogue.get(name, lambda text: click.echo(text, err=True))))


@data.command()
@click.argument("spec", type=Named("datasets"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--sheet", type=click.Path(dir_okay=False), help="Write a contact sheet (PNG) here.")
def info(spec: str, as_json: bool, sheet: str | None) -> None:
    """Show the data card of SPEC: classes, pictures, credits, what was skipped.

    \b
    dmltk data info glyphs:classes=20 --sheet glyphs.png
    """
    from pathlib import Path

    from dmltk import registry
    from dmltk.data import contact_sheet

    if sheet and not Path(sheet).parent.is_dir():
        raise click.UsageError(f"--sheet {sheet}: there is no folder '{Path(sheet).parent}'")
    dataset = registry.build("datasets", spec)
    if sheet:
        contact_sheet(dataset.test, 8, 12, sheet)
    if as_json:
        click.echo(json.dumps(dict(dataset.card), indent=1, ensure_ascii=False))
        return
    from dmltk.report.tables import print_card

    print_card(spec, dataset.card)
