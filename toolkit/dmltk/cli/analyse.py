"""``dmltk analyse``: what the embedding spaces of a run hold."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dmltk.cli.names import Named


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--attack", default="", type=Named("attacks"), help="Also attack route main by this.")
@click.option("--limit", default=0, type=click.IntRange(0), help="Attack so many queries (0: all).")
@click.option("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps (default auto).")
@click.option("--out", metavar="DIR", help="Folder (default RUN/analysis).")
@click.option("--overwrite", is_flag=True, help="Replace the analysis that is in the folder.")
@click.option("--json", "as_json", is_flag=True, help="Print analysis.json instead of a table.")
def analyse(
    run: str,
    attack: str,
    limit: int,
    device: str,
    out: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read the embedding spaces of a finished RUN on its test split, beside raw pixels.

    Counts the nearest neighbours of every class, with and without classes that were never trained,
    and draws distances of negative pairs and t-SNE maps by class and by route.

    \b
    dmltk analyse runs/mdprop-glyphs --attack stax:solver=pgd,steps=20 --limit 300
    """
    from dmltk import registry
    from dmltk.report.analysis import free, print_analysis, write
    from dmltk.spec import parse

    if attack:
        registry.resolve("attacks", parse(attack).name)
    folder = Path(out) if out else Path(run).expanduser() / "analysis"
    free(folder, overwrite)
    from dmltk.analysis.run import analyse as once
    from dmltk.report.progress import Reporter

    with Reporter() as report:
        results, drawn = once(
            run, attack=attack, limit=limit, device=device, progress=report, warn=report.warn
        )
    files = write(results, drawn, folder)
    if as_json:
        click.echo(json.dumps(results, indent=1, ensure_ascii=False))
        return
    print_analysis(results)
    click.echo(f"all figures: {files[-1].parent / 'analysis.json'}")
    for plot in files[1:]:
        click.echo(f"plot: {plot}")
