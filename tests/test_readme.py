"""What the README, the benchmarks and the commands' help say works as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from dmltk.bench.assemble import assemble as assemble_bench
from dmltk.cli import cli
from dmltk.cli.bench import bench
from dmltk.cli.run import run
from dmltk.errors import UserError
from dmltk.pipelines import build, from_yaml
from dmltk.training.assemble import assemble

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [(ROOT / "docs" / name).read_text("utf-8") for name in ("benchmarks.md", "contrastive.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_python_blocks_run() -> None:
    found = blocks("python")
    assert found
    for block in found:
        exec(compile(block, "README.md", "exec"), {})


def test_yaml_blocks_are_pipelines() -> None:
    assert [from_yaml(block) for block in blocks("yaml")] == [build("mdprop")]


def commands() -> list[str]:
    """The lines of README and the pages that call dmltk, continued and with $common filled in."""
    pages = (re.findall(r"^```\n(.*?)^```", page, re.M | re.S) for page in PAGES)
    texts = [*blocks(""), *(text for page in pages for text in page)]
    parts = []
    for text in texts:
        common = re.search(r'^common="(.*?)"\n', text, re.M | re.S)
        filled = text.replace("\\\n", " ").replace("$common", common[1] if common else "")
        parts += [part.strip() for part in re.split(r"\n(?! )|&&", filled)]
    return [" ".join(part.split()) for part in parts if part.startswith("dmltk ")]


def walk(command: click.Command, words: tuple[str, ...] = ("dmltk",)) -> list[str]:
    inner = getattr(command, "commands", {})
    help_text = (command.help or "").replace("\b", "")
    own = [line.strip() for line in help_text.splitlines() if line.strip().startswith("dmltk ")]
    return [re.split(r"\s{2,}", line)[0] for line in own] + [
        line for name, sub in inner.items() for line in walk(sub, (*words, name))
    ]


@pytest.mark.parametrize("line", sorted({*commands(), *walk(cli)}))
def test_every_printed_command_is_understood(line: str, tmp_path: Path) -> None:
    """Parsed by click; runs are also assembled to a checked configuration."""
    words = shlex.split(line)[1:]
    with cli.make_context("dmltk", list(words)) as context:
        name, command, rest = cli.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert name and command
        inner = command.make_context(name, list(rest), parent=context)
    if command is run:
        flags = {**inner.params, "out": str(tmp_path / "r")}
        if flags["config"]:
            saved = tmp_path / "config.yaml"
            saved.write_text(assemble({**flags, "config": None})[0].to_yaml())
            flags["config"] = str(saved)
        if "mine.yaml" in (flags["pipeline"] or ""):
            flags["pipeline"] = str(tmp_path / "mine.yaml")
            Path(flags["pipeline"]).write_text(build("mdprop").to_yaml())
        if any("my_package" in attack for attack in flags["attack"]):
            pytest.skip("an example of somebody else's package")
        assemble(flags)
    if command is bench:
        try:
            assemble_bench({**inner.params, "out": str(tmp_path / "b")})
        except UserError as error:
            if "run pip install dmltk-" not in str(error):
                raise
            pytest.skip(str(error))
