"""``dmltk bench``: how an existing model breaks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from dmltk.cli.names import Named
from dmltk.errors import UserError
from dmltk.spec import parse

if TYPE_CHECKING:
    from dmltk.folder import Mode


@click.command()
@click.option("--model", type=Named("models"), help="Model, such as timm:resnet50 or run:DIR.")
@click.option("--dataset", type=Named("datasets"), help="Data set; its test split is attacked.")
@click.option("--suite", multiple=True, type=Named("suites"), help="Suite or YAML file (quick).")
@click.option("--attack", multiple=True, type=Named("attacks"), help="Attack beside the suites.")
@click.option("--protocol", multiple=True, type=Named("protocols"), help="query, gallery, all.")
@click.option("--eps", help="Bounds in pixel units (default 0,1/255,2/255,4/255,8/255).")
@click.option("--limit", help="Attack only so many test pictures; the gallery stays whole.")
@click.option("--route", help="Route of a run: a name, or worst for all (default main).")
@click.option("--surrogate", type=Named("models"), help="Also transfer attacks from this model.")
@click.option("--metric", multiple=True, type=Named("metrics"), help="Figures to take.")
@click.option("--size", help="Picture size in pixels.")
@click.option("--batch", help="Pictures a pass (default 112).")
@click.option("--channels-last", help="on or off: weights in that memory format (default off).")
@click.option("--seed", help="Seed of everything (default 0).")
@click.option("--device", help="auto, cpu, cuda, cuda:1, mps (default auto).")
@click.option("--save-adversarial", metavar="DIR", help="Write every adversarial picture there.")
@click.option("--out", metavar="DIR", help="Folder (default runs/bench-<model>-<dataset>).")
@click.option("--overwrite", is_flag=True, help="Replace the bench that is in the folder.")
@click.option("--resume", is_flag=True, help="Go on with the bench that is in the folder.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a table.")
def bench(**flags: Any) -> None:
    """Attack an existing model and say how it breaks.

    \b
    dmltk bench --model run:runs/mdprop-glyphs --dataset glyphs --suite auto --limit 300
    """
    from dmltk.bench.assemble import assemble

    if flags["overwrite"] and flags["resume"]:
        raise click.UsageError("--overwrite and --resume exclude each other")
    config, out = assemble(flags)
    from dmltk.folder import RunFolder

    mode: Mode = "resume" if flags["resume"] else "overwrite" if flags["overwrite"] else "new"
    folder = RunFolder(out, mode)
    if folder.finished and mode == "resume":
        stored = folder.file("results.json")
        finished = f"{folder.path} is finished already; see {stored}"
        click.echo(stored.read_text("utf-8") if flags["as_json"] else finished)
        return
    from dmltk.bench.run import run
    from dmltk.report.curves import curves, draw
    from dmltk.report.progress import Reporter
    from dmltk.report.tables import print_bench

    routed = _routes(config.model) if config.route != "main" else None
    with Reporter() as report:
        results = run(config, folder, report, report.warn, routed)
    if lines := curves(results):
        draw(lines, folder.file("curve.png"))
    if flags["as_json"]:
        click.echo(json.dumps(results, indent=1, ensure_ascii=False))
        return
    print_bench(results)
    click.echo(f"all figures: {folder.file('results.json')}")


def _routes(model: str) -> Any:
    """The model of a run with its other routes."""
    from dmltk.models import weights
    from dmltk.training.reopen import reopen

    file = weights.file_of(model) if parse(model).name == "run" else None
    if file is None:
        raise UserError(f"--route goes with a run's model, not with {model}: give --model run:DIR")
    return reopen(file.parent)
