"""``dmltk new``: something to begin with."""

from __future__ import annotations

import click

from dmltk.cli.names import Kind


@click.group()
def new() -> None:
    """Write something to begin with.

    \b
    dmltk new plugin nudge --kind attack
    """


@new.command()
@click.argument("name")
@click.option("--kind", required=True, type=Kind(), help="Of its part: attack, loss, model…")
@click.option("--out", metavar="DIR", default=".", help="Where its folder is made (default here).")
def plugin(name: str, kind: str, out: str) -> None:
    """Write a plug-in: a distribution with one part that works, and its test.

    \b
    dmltk new plugin nudge --kind attack
    """
    from dmltk.scaffold import write

    folder = write(name, kind, out)
    click.echo(f"{folder} is written; try it: pip install -e '{folder}[test]' && pytest {folder}")
