"""A bench end to end on a small random model."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import registry
from dmltk.errors import DmltkError, UserError
from dmltk.models import Embedder
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.transforms.functional import pil_to_tensor, to_pil_image

from .conftest import SMALL, Bench


def entries(results: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [e for e in results["evaluations"] if all(e[k] == v for k, v in wanted.items())]


def picture(path: Path) -> torch.Tensor:
    with Image.open(path) as opened:
        return pil_to_tensor(opened)


def test_every_attack_protocol_and_bound_has_its_entry_and_the_control_stands_first(
    bench: Bench,
) -> None:
    found = bench(
        attack=("stax:steps=2", "misrank:steps=2"), protocol=("query", "all"), eps="0,.02,.1"
    )
    seen = [(e["name"], e["protocol"], e["eps"]) for e in found["evaluations"]]
    assert seen[:2] == [("clean", "clean", 0.0), ("clean", "query", 0.0)]
    assert set(seen[2:]) == {
        (name, protocol, eps)
        for name in ("stax", "misrank")
        for protocol in ("query", "all")
        for eps in (0.02, 0.1)
    }
    clean, control = (e["metrics"] for e in found["evaluations"][:2])
    assert clean["recall@1"] == control["recall@1"]
    for entry in found["evaluations"][2:]:
        assert entry["attack_stats"]["linf_max"] <= entry["eps"] + 1e-6
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_worst_case_is_never_above_a_single_attack(bench: Bench) -> None:
    found = bench(suite=("auto",), attack=("stax:solver=pgd,steps=5",), eps="0,.01,.05", limit="20")
    worst = {e["eps"]: e["metrics"]["recall@1"] for e in found["worst_case"] if e["suite"] is None}
    assert set(worst) == {0.01, 0.05}
    for entry in entries(found, name="stax", suite=None):
        assert worst[entry["eps"]] <= entry["metrics"]["recall@1"]


def test_a_standing_suite_attacks_only_who_is_found_and_not_broken_yet(bench: Bench) -> None:
    found = bench(suite=("auto",), eps="0,.01,.05")
    control = entries(found, name="clean", protocol="query")[0]
    standing = round(control["metrics"]["recall@1"] * control["counts"]["queries"])
    for entry in entries(found, suite="auto"):
        assert entry["metrics"] == {}
        assert entry["attack_stats"]["attacked"] == standing
        standing -= entry["attack_stats"]["lost"]
    last = [e for e in found["worst_case"] if e["eps"] == 0.05][-1]
    assert last["metrics"]["recall@1"] * control["counts"]["queries"] == pytest.approx(standing)


def test_a_line_for_every_query_says_who_was_found_before_and_after(
    bench: Bench, tmp_path: Path
) -> None:
    found = bench(attack=("misrank:steps=3",), eps=".03", limit="17")
    with (tmp_path / "b" / "queries.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 17
    entry = entries(found, name="misrank")[0]
    lost = sum(line["rank_before"] == "1" and line["rank_after"] != "1" for line in lines)
    assert lost == entry["attack_stats"]["lost"]
    hits = sum(line["rank_after"] == "1" for line in lines)
    assert entry["metrics"]["recall@1"] == pytest.approx(hits / 17)
    dataset = registry.build("datasets", SMALL["dataset"])
    labels = dataset.test.labels
    for line in lines:
        row = int(line["row"])
        assert line["class"] == dataset.test.names[int(labels[row])]
        assert int(line["nearest_before"]) != row
        right = labels[int(line["nearest_after"])] == labels[row]
        assert bool(right) == (line["rank_after"] == "1")


def test_limit_draws_queries_by_the_seed_and_leaves_the_gallery_whole(bench: Bench) -> None:
    one = bench("one", attack=("stax",), eps=".05", limit="9")
    again = bench("again", attack=("stax",), eps=".05", limit="9")
    whole = bench("whole", attack=("stax",), eps=".05")
    assert one["evaluations"] == again["evaluations"]
    assert one["evaluations"][0] == whole["evaluations"][0]
    assert one["evaluations"][1]["counts"]["queries"] == 9


def test_an_attack_on_a_surrogate_is_tried_on_the_model(bench: Bench) -> None:
    found = bench(attack=("misrank:steps=5",), eps=".05", surrogate="smallconv:width=6,dim=8")
    own, transferred = (entries(found, name=n)[0] for n in ("misrank", "misrank@surrogate"))
    assert transferred["attack_stats"]["success"] <= own["attack_stats"]["success"]
    names = [check["name"] for check in found["checks"]]
    assert "transfer is weaker than attacks by gradients" in names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attack": ("stax",), "protocol": ("all",), "limit": "3"}, "cannot go with --limit 3"),
        ({"suite": ("quik",)}, "did you mean 'quick'"),
        ({"attack": ("stax",), "eps": "2"}, "<= 1"),
        ({"model": None}, "a bench needs a model"),
        ({"suite": ("missing.yaml",)}, "there is no suite file"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(
    bench: Bench, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        bench(**given)
    assert not (tmp_path / "b").exists()


def test_channels_last_is_a_layout_and_nothing_more(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"attack": ("misrank:steps=2",), "eps": ".02"}
    plain, seen = bench("off", **given), []

    def called(self: Embedder, images: torch.Tensor) -> torch.Tensor:
        seen.extend(weight.stride() for weight in self.parameters() if weight.ndim == 4)
        return forward(self, images)

    forward = Embedder.forward
    monkeypatch.setattr(Embedder, "forward", called)
    other = bench("on", channels_last="on", **given)
    assert seen and all(stride[1] == 1 for stride in seen)
    for one, two in zip(plain["evaluations"], other["evaluations"], strict=True):
        assert one["metrics"]["map@r"] == pytest.approx(two["metrics"]["map@r"], abs=0.02)


@pytest.mark.parametrize("name", registry.available("suites"))
def test_every_shipped_suite_runs(bench: Bench, name: str) -> None:
    found = bench(suite=(name,), eps="0,.03", limit="4")
    planned = {e["name"] for e in found["evaluations"] if e["suite"] == name}
    assert planned or found["worst_case"][0]["counts"]["broken"] == 0
    failed = [warning for warning in found["warnings"] if "failed and is left out" in warning]
    assert not failed


def test_a_suite_may_be_a_file(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("attacks:\n  - {attack: 'stax:steps=1', eps: [1/255]}\n  - {attack: noise}\n")
    found = bench(suite=(str(file),), eps="0,.1")
    assert [(e["name"], e["eps"]) for e in entries(found, suite=str(file))] == [
        ("stax", 1 / 255),
        ("noise", 0.1),
    ]


def test_what_is_not_installed_is_left_out_with_the_command(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("attacks:\n  - {attack: stax}\n  - {attack: other, needs: [no-such-thing]}\n")
    found = bench(suite=(str(file),), eps=".1")
    assert "other needs no-such-thing: pip install no-such-thing" in found["warnings"]


KILLED_AND_RESUMED = """
import os, random, sys
from pathlib import Path
from tests.bench.conftest import flags
from dmltk.bench import state
from dmltk.bench.assemble import assemble
from dmltk.bench.run import run
from dmltk.folder import RunFolder

root, given = Path(sys.argv[1]), dict(suite=("auto",), attack=("stax:steps=3",), eps="0,.01,.05")
given |= {"batch": "5"}
os.environ["OMP_NUM_THREADS"] = "1"


def go(name, mode="new", after=None):
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    keep, count = state.State.save, 0

    def save(self, key, outcome):
        nonlocal count
        keep(self, key, outcome)
        count += 1
        if count == after:
            os.kill(os.getpid(), 9)
    state.State.save = save
    config, out = assemble(flags(out=str(root / name), resume=mode == "resume", **given))
    run(config, RunFolder(out, mode), lambda *_: None, lambda _: None)
    (root / f"{name}.saves").write_text(str(count))
    os._exit(0)


assert go("whole") == 0
saves = int((root / "whole.saves").read_text())
draws = random.Random(0)
for place in range(5):
    after = draws.randint(1, saves - 1)
    assert go(f"cut{place}", after=after) == 9, "not killed"
    assert not (root / f"cut{place}" / "results.json").exists()
    assert go(f"cut{place}", "resume") == 0
"""


def test_a_bench_killed_at_five_places_goes_on_to_the_same_results(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    subprocess.run(
        [sys.executable, "-c", KILLED_AND_RESUMED, str(tmp_path)],
        check=True,
        env=surroundings,
        cwd=root,
    )
    keys = ("evaluations", "worst_case", "checks", "warnings")
    read = {}
    for name in ("whole", *(f"cut{place}" for place in range(5))):
        held = json.loads((tmp_path / name / "results.json").read_text())
        read[name] = [held[key] for key in keys]
        assert (tmp_path / name / "queries.csv").read_text() == (
            tmp_path / "whole" / "queries.csv"
        ).read_text()
    assert all(found == read["whole"] for found in read.values())


def test_a_full_disk_stops_the_bench_and_what_was_kept_is_gone_on_from(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"attack": ("stax:steps=2", "misrank:steps=2"), "eps": ".05", "batch": "16"}
    whole = bench("whole", **given)
    written = 0

    def full(*arguments: Any, **named: Any) -> None:
        nonlocal written
        written += 1
        if written > 3:
            raise OSError(28, "No space left on device")
        save_file(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr("dmltk.stored.save_file", full)
        with pytest.raises(DmltkError, match=r"cannot write .*No space left.*--resume"):
            bench(**given)
    assert not (tmp_path / "b" / "results.json").exists()
    assert bench(mode="resume", **given)["evaluations"] == whole["evaluations"]


def test_resume_with_other_settings_is_refused(bench: Bench) -> None:
    bench(attack=("stax",), eps=".05")
    with pytest.raises(UserError, match="whose seed is '0', not '1'"):
        bench(mode="resume", attack=("stax",), eps=".05", seed="1")


def test_adversarial_pictures_are_a_data_set_with_its_list(bench: Bench, tmp_path: Path) -> None:
    bench(attack=("stax:steps=3",), eps=".05", limit="20", save_adversarial=str(tmp_path / "adv"))
    lists = list((tmp_path / "adv").glob("*.csv"))
    assert len(lists) == 1
    dataset = registry.build("datasets", SMALL["dataset"])
    clean = {row: image for image, _, row in dataset.test}
    with lists[0].open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 20
    folder = tmp_path / "adv" / lists[0].stem
    floats = load_file(next((tmp_path / "adv" / f"{lists[0].stem}.floats").iterdir()))
    by_row = dict(zip(floats["index"].tolist(), floats["images"], strict=True))
    for line in lines:
        saved = picture(tmp_path / "adv" / line["path"]).float() / 255
        source = clean[int(line["row"])].float() / 255
        assert (saved - source).abs().max() <= 0.05 + 1e-6
        assert (saved - by_row[int(line["row"])]).abs().max() <= 1 / 255
        exact = (by_row[int(line["row"])] - source).abs().max().item()
        assert exact == pytest.approx(float(line["linf"]), abs=1e-7)
    read = registry.build("datasets", f"folder:{folder}")
    assert len(read.train) + len(read.test) == 20


def test_the_sheet_of_the_worst_shows_queries_that_are_lost_in_eight_bit(
    bench: Bench, tmp_path: Path
) -> None:
    found = bench(attack=("misrank:steps=5",), eps=".01,.05")
    rows = found["worst_pictures"]
    assert 0 < len(rows) <= 8
    with (tmp_path / "b" / "queries.csv").open(newline="") as file:
        lost = {int(r["row"]) for r in csv.DictReader(file) if r["rank_after"] != "1"}
    assert set(rows) <= lost
    assert picture(tmp_path / "b" / "worst.png").shape == (
        3,
        2 + len(rows) * 18,
        2 + 3 * 18,
    )


def test_a_failed_check_is_a_warning(bench: Bench) -> None:
    class Rounded(torch.nn.Module):
        """A model whose gradients are all zero: rounding hides them."""

        def __init__(self) -> None:
            super().__init__()
            self.size, self.scale = 16, torch.nn.Parameter(torch.ones(()))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            rough = images + ((images * 8).round() / 8 - images).detach() - images + images.detach()
            z = torch.nn.functional.adaptive_avg_pool2d(rough, 4).flatten(1) * self.scale
            return torch.nn.functional.normalize(z, dim=1)

    registry.register("models", "rounded", Rounded)
    found = bench(model="rounded", attack=("misrank:steps=5",), eps=".02")
    failed = [check["name"] for check in found["checks"] if not check["passed"]]
    assert "few gradients are exactly zero" in failed
    assert any("gradient masking" in warning for warning in found["warnings"])


def test_a_gallery_set_apart_is_what_queries_are_looked_up_in(bench: Bench, tmp_path: Path) -> None:
    """A csv with query and gallery parts: only queries are attacked, only the gallery answers."""
    dataset = registry.build("datasets", SMALL["dataset"])
    lines = ["path,label,split"]
    for row in range(len(dataset.train)):
        image, label, _ = dataset.train[row]
        to_pil_image(image).save(tmp_path / f"t{row}.png")
        lines.append(f"t{row}.png,t{label},train")
    for row in range(len(dataset.test)):
        image, label, _ = dataset.test[row]
        to_pil_image(image).save(tmp_path / f"q{row}.png")
        lines.append(f"q{row}.png,q{label},{'query' if row % 3 == 0 else 'gallery'}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    given = {"dataset": f"csv:{tmp_path / 'list.csv'},size=16", "attack": ("misrank:steps=3",)}
    found = bench(**given, protocol=("query", "all"), eps=".03")
    asked = len(range(0, len(dataset.test), 3))
    assert {entry["counts"]["queries"] for entry in found["evaluations"]} == {asked}
    by = {entry["protocol"]: entry["attack_stats"] for entry in entries(found, name="misrank")}
    assert by["query"]["lost"] <= asked and by["all"]["attacked"] == len(dataset.test)
    assert found["worst_case"][0]["counts"]["queries"] == asked
    with (tmp_path / "b" / "queries.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == asked


class Collapsed(torch.nn.Module):
    """A constant embedding plus a thousandth of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.scale = 16, torch.nn.Parameter(torch.tensor(1e-3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        z = torch.nn.functional.adaptive_avg_pool2d(images, 4).flatten(1) * self.scale
        return torch.nn.functional.normalize(torch.cat([z, torch.ones_like(z[:, :1])], 1), dim=1)


def test_the_score_of_a_collapsed_model_stands_beside_its_flag(bench: Bench) -> None:
    registry.register("models", "collapsed", Collapsed)
    found = bench(model="collapsed", suite=("ers",), limit="12")
    (entry,) = found["scores"]
    assert entry["collapsed"] == 1.0
    assert any("have collapsed" in warning for warning in found["warnings"])
    assert len(entry["terms"]) == 10 and entry["eps"] == 8 / 255
    assert entry["score"] == pytest.approx(sum(entry["terms"]) / 10)
    stats = {e["name"]: e["attack_stats"] for e in entries(found, suite="ers")}
    assert entry["terms"][0] == pytest.approx(200 * stats["ca-up"]["prank"])
    assert entry["terms"][4] == pytest.approx(100 * (1 - stats["tma"]["cosine"]))
    assert entry["control"]["terms"][9] == 100


def pictures_csv(folder: Path, rows: list[tuple[torch.Tensor, str, str]]) -> str:
    """A csv data set of these pictures (3, 16, 16), their labels and splits."""
    lines = ["path,label,split"]
    for number, (image, label, split) in enumerate(rows):
        to_pil_image(image).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{label},{split}")
    (folder / "list.csv").write_text("\n".join(lines))
    return f"csv:{folder / 'list.csv'},size=16"


def drawn(count: int, labels: list[str], split: str) -> list[tuple[torch.Tensor, str, str]]:
    draws = torch.Generator().manual_seed(count)
    images = torch.rand(count, 3, 16, 16, generator=draws)
    return [(image, labels[i % len(labels)], split) for i, image in enumerate(images)]


@pytest.mark.parametrize("gallery", [2, 99])
def test_small_galleries_give_defined_results(bench: Bench, tmp_path: Path, gallery: int) -> None:
    """PITFALLS 21."""
    rows = drawn(4, ["a", "b"], "train") + drawn(3, ["c", "d"], "query")
    spec = pictures_csv(tmp_path, rows + drawn(gallery, ["c", "d"], "gallery"))
    found = bench(dataset=spec, suite=("ers", "auto"), attack=("stax",), eps="0,.05")
    assert not [w for w in found["warnings"] if "left out" in w]
    assert len(found["scores"]) == 1


def test_one_class_is_refused_in_a_sentence(bench: Bench, tmp_path: Path) -> None:
    spec = pictures_csv(tmp_path, drawn(4, ["a", "b"], "train") + drawn(6, ["c"], "test"))
    with pytest.raises(UserError, match="no other class to aim at"):
        bench(dataset=spec, attack=("stax",), eps=".05")


def test_black_pictures_give_defined_results(bench: Bench, tmp_path: Path) -> None:
    black = [(torch.zeros(3, 16, 16), label, "test") for label in "cdcdcd"]
    spec = pictures_csv(tmp_path, drawn(4, ["a", "b"], "train") + black)
    found = bench(dataset=spec, attack=("misrank:steps=2",), eps="0,.05")
    assert found["worst_case"][0]["metrics"]["recall@1"] == 0.0


def test_bounds_that_an_attack_names_itself_and_boxes_are_tried_once(bench: Bench) -> None:
    specs = ("stax:eps=.07", "stax:norm=l2,eps=2", "colour", "stax")
    found = bench(attack=specs, eps="0,.02,.05")
    seen = sorted((e["norm"], e["eps"]) for e in found["evaluations"] if e["attack"])
    linf = [("linf", 0.02), ("linf", 0.05), ("linf", 0.07)]
    assert seen == sorted([*linf, ("l2", 2.0), ("none", 1.0)])


def test_no_bound_at_all_is_refused(bench: Bench) -> None:
    with pytest.raises(UserError, match="every bound is 0"):
        bench(attack=("stax",), eps="0")


def test_a_bench_does_not_go_on_with_other_pictures(bench: Bench, tmp_path: Path) -> None:
    rows = drawn(4, ["a", "b"], "train") + drawn(6, ["c", "d"], "test")
    spec = pictures_csv(tmp_path, rows)
    given = {"dataset": spec, "attack": ("misrank:steps=2",), "eps": ".05"}
    bench(**given)
    (tmp_path / "b" / "results.json").unlink()
    pictures_csv(tmp_path, [(1 - image, label, split) for image, label, split in rows])
    with pytest.raises(UserError, match="the pictures changed since"):
        bench(mode="resume", **given)
