"""``dmltk doctor``: what this installation can do."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Show versions, devices, extras, the cache and broken plug-ins.

    \b
    dmltk doctor
    """
    from dmltk.report.doctor import examine

    found = examine()
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    from dmltk.report.tables import print_card

    print_card("doctor", found)
