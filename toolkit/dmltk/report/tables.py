"""What commands print: tables that degrade to plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dmltk.description import Description
from dmltk.pipelines.structure import Pipeline

_WIDTH = 128


def console() -> Console:
    """Standard output; wide enough for a table where it is no terminal."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=_WIDTH)


def print_results(results: Mapping[str, Any]) -> None:
    """The table at the end of a run: an evaluation a row, fractions in [0, 1]."""
    rows = results["evaluations"]
    out = console()
    names = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    names = _that_fit(names, out.width, 12 if any("deviation" in row for row in rows) else 5)
    table = Table("attack", "protocol", "ε", *names, "success", box=None, pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        spread = row.get("deviation", {})
        figures = [_figure(row["metrics"].get(name), spread.get(name)) for name in names]
        success = row.get("attack_stats", {}).get("success")
        table.add_row(
            row["name"] + (f" ({row['weights']})" if "weights" in row else ""),
            row["protocol"],
            budget(row["eps"], row.get("norm")),
            *figures,
            "" if row["attack"] is None else _figure(success),
        )
    out.print(table)


def print_bench(results: Mapping[str, Any]) -> None:
    """The tables at the end of a bench: single attacks, the worst case, the checks."""
    whole = [entry for entry in results["evaluations"] if not entry.get("standing")]
    print_results({"evaluations": whole})
    out = console()
    own = {e["name"]: e["attack"] for e in whole if e["attack"] and e["suite"] is None}
    for name, spec in own.items():
        if name != spec:
            out.print(f"{name}: {escape(spec)}")
    worst = Table("worst case", "norm", "ε", "recall@1", "broken", "of", box=None, pad_edge=False)
    for entry in results["worst_case"]:
        counts = entry["counts"]
        name = "all attacks" if entry["suite"] is None else entry["suite"] or "single attacks"
        figures = _figure(entry["metrics"]["recall@1"]), counts["broken"], counts["queries"]
        worst.add_row(name, entry["norm"], budget(entry["eps"], entry["norm"]), *map(str, figures))
    out.print()
    out.print(worst)
    for entry in results["scores"]:
        flag = "; the model has COLLAPSED: the score says nothing" if entry["collapsed"] else ""
        out.print(
            f"ERS at {budget(entry['eps'])} ({entry['route']}): {entry['score']:.1f}, clipped"
            f" {entry['clipped']:.1f}; without an attack {entry['control']['score']:.1f}; clean"
            f" recall@1 {entry['recall@1']:.3f}{flag}"
        )
    checks = Table("check", "", "seen", box=None, pad_edge=False)
    for check in results["checks"]:
        mark = "holds" if check["passed"] else "[red]FAILS[/red]"
        checks.add_row(escape(check["name"]), mark, escape(check["seen"]))
    out.print()
    out.print(checks)


def print_checks(part: str, results: Sequence[Any]) -> None:
    """What became of each check of a part."""
    table = Table("check", "", "why", box=None, pad_edge=False)
    marks = {"failed": "[red]FAILS[/red]", "expected": "fails as told", "passed": "holds"}
    for one in results:
        name = one.check.replace("_", " ")
        table.add_row(name, marks.get(one.status, one.status), escape(one.message))
    failed = sum(one.status == "failed" for one in results)
    out = console()
    out.print(table)
    verdict = f"{failed} of {len(results)} checks fail" if failed else "it conforms"
    out.print(f"{escape(part)}: {verdict}")


def print_reproduced(results: Mapping[str, Any]) -> None:
    """A published table, ours beside it, and what each sort of row means."""
    out = console()
    table = Table("what", "published", "here, by seed", "sort", "holds", box=None, pad_edge=False)
    for row in results["rows"]:
        name = row["name"] + (f" ({row['note']})" if row["note"] else "")
        cells = (name, row["published"], "; ".join(row["ours"]), row["sort"], row["holds"])
        table.add_row(*map(escape, cells))
    out.print(table)
    for sort, meaning in results["sorts"].items():
        out.print(f"{sort}: {meaning}")


def print_plan(found: Mapping[str, Any]) -> None:
    """What a training will see; numbers with commas."""
    single, groups, each = (
        found[name] for name in ("single_picture_classes", "contradictory_labels", "pairs_a_batch")
    )
    listed = "" if found["listed_pairs"] is None else f", of {found['listed_pairs']:,} lines"
    rows = {
        "pictures": f"{found['pictures']:,} of {found['classes']:,} classes",
        "single-picture classes": f"{len(single):,} (no like pair)" + _first(single),
        "pairs": _sorts(found["pairs"]) + listed,
        "pairs a batch": _sorts(each),
        "batches an epoch": f"{found['batches_an_epoch']:,}",
        "pair distances": f"{found['distances']:,} in {found['epochs']:,} epochs",
        "different pairs, expected": _visits(found["expected"], found["pairs"]["all"]),
        f"different pairs, seed {found['seed']}": "not counted: more than 20 million pairs"
        if found["visited"] is None
        else _visits(found["visited"], found["pairs"]["all"]),
        "optimizer steps": f"{found['steps']:,}",
        "pictures passed": f"{found['pictures_passed']:,}",
        "contradictory labels": f"{len(groups):,} groups of equal pictures"
        + _first([f"rows {_plain_list(g['rows'])} as {_plain_list(g['classes'])}" for g in groups]),
    }
    print_card(found["dataset"], rows)


def _sorts(counts: Mapping[str, Any]) -> str:
    return f"{counts['all']:,} = {counts['like']:,} like + {counts['unlike']:,} unlike"


def _visits(found: Mapping[str, Any], every: int) -> str:
    share = "" if found["share"] is None else f" ({found['share']:.4f})"
    return f"{found['pairs']:,.0f} of {every:,}{share}"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return f": {', '.join(names[:10])}{more}" if names else ""


def _plain_list(items: Sequence[Any]) -> str:
    return "+".join(map(str, items))


def _that_fit(names: list[str], width: int, cell: int) -> list[str]:
    """The first figures that a line has room for; all are in ``results.json``."""
    room = width - 40
    kept: list[str] = []
    for name in names:
        room -= max(len(name), cell) + 2
        if room < 0:
            break
        kept.append(name)
    return kept or names[:1]


def budget(eps: float, norm: str | None = None) -> str:
    """A bound as it is read: n/255 in pixel units, a length for l2, `box` where nothing else is."""
    if norm == "none":
        return "box"
    if norm == "l2":
        return f"{eps:.3g} l2"
    return "0" if eps == 0 else f"{eps * 255:.3g}/255"


def print_pipeline(pipeline: Pipeline, sets: Mapping[str, str]) -> None:
    """A pipeline as YAML, and which set of normalisers each route uses, where that is known."""
    out = console()
    out.print(escape(pipeline.to_yaml()).rstrip())
    if sets:
        out.print("# routes: " + ", ".join(f"{route} → {name}" for route, name in sets.items()))
    for term in pipeline.terms:
        if term.join == "each" and len(term.of) > 1:
            out.print(
                f"# {escape(term.loss)}: the sum of {len(term.of)} values, so the gradient is about"
                f" {len(term.of)} times that of one"
            )
    out.print()


def print_description(found: Description) -> None:
    """What ``dmltk show`` prints."""
    out = console()
    out.print(f"[bold]{found.name}[/bold] ({found.kind}, {found.distribution} {found.version})")
    body = found.text.split("\nArgs:")[0].split("\nSource")[0].strip()
    out.print(escape(body))
    if found.source:
        out.print(f"Source: {escape(found.source)}")
    if found.facts:
        facts = Table("", "", show_header=False, box=None, pad_edge=False)
        for name, text in found.facts.items():
            facts.add_row(name, escape(text))
        out.print()
        out.print(facts)
    table = Table("argument", "type", "default", "range", "meaning", box=None, pad_edge=False)
    for item in found.parameters:
        cells = (item.name, item.type, item.default, item.range, item.meaning)
        table.add_row(*(escape(cell) for cell in cells))
    out.print()
    out.print(table if found.parameters else "no arguments")
    out.print()


def print_card(title: str, card: Mapping[str, Any]) -> None:
    """Plain data as two columns; a list stands one item a line."""
    table = Table("", "", show_header=False, box=None, pad_edge=False)
    for key, value in card.items():
        table.add_row(str(key), escape(_plain(value)))
    out = console()
    out.print(f"[bold]{escape(title)}[/bold]")
    out.print(table)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {item}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(map(_plain, value)) or "none"
    return str(value)


def _figure(value: float | None, deviation: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" + ("" if deviation is None else f" ±{deviation:.3f}")
