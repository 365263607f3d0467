"""``dmltk run``: compose, train, attack, judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmltk.cli.names import Named

if TYPE_CHECKING:
    from dmltk.folder import Mode
    from dmltk.training.config import Config

_PLAIN = (
    ("--size", "Picture size in pixels (default: the data set's, else the model's, else 64)."),
    ("--batch", "Pictures a batch (default 112)."),
    ("--per-class", "Pictures of each class in a batch (default 2)."),
    ("--sampler", "classes or pairs: what a batch is made of (default classes)."),
    ("--augment", "What every training picture goes through, such as chain:[crop,flip]."),
    ("--features", "File of features whose clusters are pseudo-labels (default: the model's)."),
    ("--workers", "Processes that decode pictures ahead (default 0: none)."),
    ("--epochs", "Passes over the training split (default 15)."),
    ("--steps", "Optimizer steps, instead of epochs."),
    ("--optimizer", "adam, sgd or lars (default adam)."),
    ("--momentum", "Of sgd and lars (default .9)."),
    ("--lr", "Learning rate (default 2e-3)."),
    ("--head-lr", "Learning rate of the heads (default: that of --lr)."),
    ("--clip", "Largest norm of the gradient (default: not clipped)."),
    ("--amp", "off or bf16: the type of training passes (default off)."),
    ("--channels-last", "auto, on or off: weights in that memory format (default off)."),
    ("--patience", "Stop after so many epochs without a better validation recall@1."),
    ("--warmup", "Steps of linear warm-up (default 20)."),
    ("--schedule", "cosine or constant, after the warm-up (default cosine)."),
    ("--weight-decay", "On everything but the losses' own parameters (default 4e-4)."),
    ("--ema", "Decay of the averaged weights, where a branch asks for them (default .999)."),
    ("--eps", "Bound of attacks that name none, pixel units (default 8/255)."),
    ("--limit", "Attack only so many test pictures."),
    ("--seed", "Seed of everything (default 0)."),
    ("--seeds", "Several seeds, such as 0,1,2: a run each, then means and deviations."),
    ("--device", "auto, cpu, cuda, cuda:1, mps (default auto)."),
)


def _options(command: Any) -> Any:
    for flag, text in reversed(_PLAIN):
        command = click.option(flag, help=text)(command)
    return command


@click.command()
@click.option("--attack", multiple=True, type=Named("attacks"), help="Add a branch (repeatable).")
@click.option("--bn", type=Named("norms"), help="What routes share: shared, dual, kway.")
@click.option("--loss", type=Named("losses"), help="Loss (default multisimilarity).")
@click.option("--pipeline", type=Named("pipelines"), help="A named method or YAML file.")
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Change a field.")
@click.option("--model", type=Named("models"), help="Model (default smallconv).")
@click.option("--dataset", type=Named("datasets"), help="Data set (default glyphs).")
@_options
@click.option("--route-lr", multiple=True, metavar="ROUTE=RATE", help="Rate of one route's norms.")
@click.option("--with-replacement", is_flag=True, help="Draw batches with replacement (Roth).")
@click.option("--diagnose", is_flag=True, help="Follow distances and pairs; warn of collapse.")
@click.option("--eval-attack", multiple=True, type=Named("attacks"), help="Judge by this attack.")
@click.option("--protocol", multiple=True, type=Named("protocols"), help="clean, query, all.")
@click.option("--metric", multiple=True, type=Named("metrics"), help="Figures to take.")
@click.option("--config", metavar="FILE", help="Start from a saved config.yaml.")
@click.option("--allow-import", multiple=True, metavar="PACKAGE", help="Let FILE import it.")
@click.option("--out", metavar="DIR", help="Run folder (default runs/<method>-<dataset>).")
@click.option("--overwrite", is_flag=True, help="Replace the run that is in the folder.")
@click.option("--resume", is_flag=True, help="Go on with the run that is in the folder.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a table.")
def run(**flags: Any) -> None:
    """Train a model by a method, then judge it clean and under attack.

    Without --attack and --pipeline the method is mdprop; --pipeline st is plain training.

    \b
    dmltk run --attack mtax --bn kway --loss multisimilarity --epochs 1 --out runs/first
    """
    from dmltk.training.assemble import assemble

    if flags["overwrite"] and flags["resume"]:
        raise click.UsageError("--overwrite and --resume exclude each other")
    config, out = assemble(flags)
    mode: Mode = "resume" if flags["resume"] else "overwrite" if flags["overwrite"] else "new"
    _execute(config, out, mode, flags["as_json"])


def _execute(config: Config, out: Path, mode: Mode, as_json: bool) -> None:
    from dmltk.folder import RunFolder
    from dmltk.report.progress import Reporter
    from dmltk.report.tables import print_pipeline, print_results

    folder = RunFolder(out, mode)
    if folder.finished and mode == "resume":
        stored = folder.file("results.json")
        finished = f"{folder.path} is finished already; see {stored}"
        click.echo(stored.read_text("utf-8") if as_json else finished)
        return
    from dmltk.training.repeat import repeat
    from dmltk.training.run import run as once

    with Reporter() as report:
        work = repeat if config.seeds else once
        results = work(config, folder, report, report.warn, report.say)
    if as_json:
        click.echo(json.dumps(results, indent=1, ensure_ascii=False))
        return
    print_pipeline(config.pipeline, results["routes"])
    print_results(results)
    click.echo(f"all figures: {folder.file('results.json')}")
