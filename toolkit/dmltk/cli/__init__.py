"""The commands; each module handles arguments and leaves the work to the floors below."""

from __future__ import annotations

import click

from dmltk.cli.analyse import analyse
from dmltk.cli.bench import bench
from dmltk.cli.check import check
from dmltk.cli.data import data
from dmltk.cli.doctor import doctor
from dmltk.cli.list import list_
from dmltk.cli.new import new
from dmltk.cli.plan import plan
from dmltk.cli.reproduce import reproduce
from dmltk.cli.run import run
from dmltk.cli.show import show


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dmltk", prog_name="dmltk")
@click.option(
    "--debug", is_flag=True, help="Show a traceback with an error (anywhere in a command)."
)
def cli(debug: bool) -> None:
    """Attack, defend and judge models that turn pictures into embeddings.

    \b
    dmltk run                                        train MDProp on drawn glyphs, then judge it
    dmltk run --attack mtax --bn kway --loss multisimilarity
    dmltk bench --model run:runs/mdprop-glyphs --dataset glyphs
    dmltk plan --dataset glyphs                      what a training will see: pairs, cost
    dmltk list attacks
    dmltk show attack mtax
    """


for command in (plan, run, bench, analyse, reproduce, list_, show, check, new, data, doctor):
    cli.add_command(command)
