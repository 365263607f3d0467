"""``dmltk reproduce``: a published table again, its numbers beside ours."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("table")
@click.option("--seeds", default="0,1,2", show_default=True, help="A training each.")
@click.option("--preset", default="edge", show_default=True, help="edge or study: first weights.")
@click.option("--out", metavar="DIR", help="Folder (default runs/<table>).")
@click.option("--overwrite", is_flag=True, help="Replace what is in the folder.")
@click.option("--resume", is_flag=True, help="Go on with what is in the folder.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a table.")
def reproduce(
    table: str,
    seeds: str,
    preset: str,
    out: str | None,
    overwrite: bool,
    resume: bool,
    as_json: bool,
) -> None:
    """Run the experiments of a published TABLE: siamese-page.

    Identities must agree, claims should hold for each seed, other figures hang on weights and
    pictures.

    \b
    dmltk reproduce siamese-page --seeds 0 --out runs/page
    """
    from dmltk.errors import UserError
    from dmltk.folder import RunFolder
    from dmltk.report.progress import Reporter
    from dmltk.report.tables import print_reproduced
    from dmltk.reproduce.run import reproduce as once

    if overwrite and resume:
        raise click.UsageError("--overwrite and --resume exclude each other")
    parts = [part.strip() for part in seeds.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise UserError(f"--seeds {seeds}: whole numbers are needed, such as 0,1,2")
    folder = RunFolder(
        out or f"runs/{table}", "overwrite" if overwrite else "resume" if resume else "new"
    )
    with Reporter() as report:
        results = once(
            table,
            folder,
            seeds=[int(part) for part in parts],
            preset=preset,
            progress=report,
            warn=report.warn,
        )
    if as_json:
        click.echo(json.dumps(results, indent=1, ensure_ascii=False))
        return
    print_reproduced(results)
    click.echo(f"all figures: {folder.file('results.json')}")
