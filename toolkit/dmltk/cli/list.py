"""``dmltk list``: what is registered, without importing it."""

from __future__ import annotations

import json

import click

from dmltk.cli.names import Kind


@click.command("list")
@click.argument("kind", required=False, type=Kind())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(kind: str | None, as_json: bool) -> None:
    """List registered parts: of one KIND, or of all.

    \b
    dmltk list attacks
    """
    from dmltk.entries import KINDS, entries, plural
    from dmltk.source import summary

    kinds = [plural(kind)] if kind else KINDS
    rows = [
        {
            "kind": entry.kind,
            "name": entry.name,
            "distribution": entry.distribution,
            "version": entry.version,
            "state": entry.state,
            "summary": summary(entry),
        }
        for wanted in kinds
        for entry in entries(wanted)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    from dmltk.report.listing import listing

    click.echo(listing(rows))
