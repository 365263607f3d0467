"""``dmltk check``: whether a registered part does what its kind must."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command("check")
@click.argument("part", metavar="KIND:NAME[:ARGS]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(context: click.Context, part: str, as_json: bool) -> None:
    """Run the conformance kit on a part; exits 1 where a check fails.

    \b
    dmltk check attack:stax
    """
    from dmltk import registry

    kind, spec = registry.named(part)
    registry.resolve(kind, spec.name)
    from dmltk import testing
    from dmltk.report.tables import print_checks

    results = testing.check(kind, spec)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in results], indent=1, ensure_ascii=False))
    else:
        print_checks(part, results)
    context.exit(1 if any(one.status == "failed" for one in results) else 0)
