"""A whole small run: files, figures, resuming to the same bits, refusing before work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import models, pipelines, stored
from dmltk.cli.run import run as command
from dmltk.errors import DmltkError, UserError
from dmltk.evaluation.metrics import first_hits
from dmltk.folder import RunFolder
from dmltk.training import checkpoint
from dmltk.training.assemble import assemble
from dmltk.training.config import Config, load
from dmltk.training.repeat import repeat
from dmltk.training.run import prepare, run
from safetensors.torch import load_file

from .methods import register

SMALL = {
    "dataset": "glyphs:classes=12,per_class=6,size=16",
    "model": "smallconv:width=4",
    "batch": "12",
    "epochs": "2",
    "warmup": "2",
    "eval_attack": ("stax:solver=pgd,steps=2,gain=1,start=0,select=last",),
}


def flags(**given: Any) -> dict[str, Any]:
    """All flags of the command, not given unless they are."""
    found = {parameter.name: None for parameter in command.params}
    many = {p.name: () for p in command.params if getattr(p, "multiple", False)}
    return {**found, **many, "overwrite": False, "resume": False, "as_json": False, **given}


def go(folder: Path, mode: str = "new", **given: Any) -> dict[str, Any]:
    config, out = assemble(flags(**{**SMALL, "out": str(folder), **given}, resume=mode == "resume"))
    return run(config, RunFolder(out, mode), lambda *_: None, lambda _: None)


def interrupted(folder: Path, **given: Any) -> Path:
    """A run that is broken off at step 5."""

    def progress(doing: str, done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    config, out = assemble(flags(**{**SMALL, **given, "out": str(folder)}))
    with pytest.raises(KeyboardInterrupt):
        run(config, RunFolder(out), progress, lambda _: None)
    return out


def bits(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, two: Path) -> bool:
    a, b = bits(one), bits(two)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    go(folder)
    return folder


def test_a_run_leaves_what_it_promises(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()} - {"tensorboard"}
    assert names == {
        "config.yaml",
        "environment.json",
        "log.jsonl",
        "log.csv",
        "checkpoint.safetensors",
        "checkpoint.previous.safetensors",
        "model.safetensors",
        "results.json",
    }
    results = json.loads((finished / "results.json").read_text())
    assert (results["schema"], results["kind"]) == (1, "run")
    assert results["routes"] == {"main": "main", "stax": "stax", "mtax": "mtax"}
    named = [(e["name"], e["protocol"]) for e in results["evaluations"]]
    assert named == [("clean", "clean"), ("stax", "query"), ("stax", "all")]
    for entry in results["evaluations"]:
        assert {"recall@1", "recall@8", "map@r", "nmi", "pi_ratio"} <= set(entry["metrics"])
        recalls = [entry["metrics"][f"recall@{k}"] for k in (1, 2, 4, 8)]
        assert recalls == sorted(recalls) and recalls[0] >= 0 and recalls[-1] <= 1
    attacked = results["evaluations"][1]
    assert 0 < attacked["attack_stats"]["linf_max"] <= 8 / 255 + 1e-6
    assert attacked["attack_stats"]["backwards"] == 2 * 36
    assert attacked["eps"] == pytest.approx(8 / 255)


def test_the_log_has_a_line_an_epoch(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["step"]) for line in lines] == [(1, 3), (2, 6)]
    assert all(line["loss"] == pytest.approx(sum(line["terms"])) for line in lines)


def test_the_environment_names_versions_and_data(finished: Path) -> None:
    found = json.loads((finished / "environment.json").read_text())
    assert found["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert len(found["data"]["sha256"]) == 64


def test_clean_recall_is_that_of_the_saved_model_by_brute_force(finished: Path) -> None:
    """Embed with the saved file alone, compare all pairs in a loop."""
    from dmltk import data

    test = data.build(SMALL["dataset"]).test
    embedder = models.build(SMALL["model"], dim=64, weights=str(finished / "model.safetensors"))
    with torch.no_grad():
        z = embedder.eval()(torch.stack([test[i][0] for i in range(len(test))]).float() / 255)
    hits = 0
    for i in range(len(z)):
        gaps = [(float((z[i] - z[j]).square().sum()), j) for j in range(len(z)) if j != i]
        hits += int(test.labels[min(gaps)[1]] == test.labels[i])
    results = json.loads((finished / "results.json").read_text())
    assert results["evaluations"][0]["metrics"]["recall@1"] == pytest.approx(hits / len(z))


def test_a_saved_config_runs_again_to_the_same_figures(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    config, out = assemble(flags(config=str(finished / "config.yaml"), out=str(again)))
    results = run(config, RunFolder(out), lambda *_: None, lambda _: None)
    before = json.loads((finished / "results.json").read_text())
    assert json.loads(json.dumps(results["evaluations"])) == before["evaluations"]
    assert same(finished, again)


def test_another_seed_gives_another_model(finished: Path, tmp_path: Path) -> None:
    go(tmp_path / "other", seed="1", eval_attack=("fgsm",), protocol=("clean",))
    assert not same(finished, tmp_path / "other")


def test_an_interrupted_run_goes_on_to_the_same_bits(finished: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def progress(doing: str, done: int, total: int) -> None:
        if doing == "train" and done == 4:
            raise Stop

    config, out = assemble(flags(**SMALL, out=str(tmp_path / "cut")))
    with pytest.raises(Stop):
        run(config, RunFolder(out), progress, lambda _: None)
    assert not (out / "results.json").exists()
    go(out, "resume")
    assert same(finished, out)
    assert len((out / "log.jsonl").read_text().splitlines()) == 2


def test_a_killed_process_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """kill -9 in the middle of training, then --resume, against an undisturbed run."""
    words = ["--dataset", SMALL["dataset"], "--model", "smallconv:width=4", "--batch", "12"]
    words += ["--steps", "45", "--eval-attack", "fgsm", "--protocol", "clean"]
    command = [sys.executable, "-m", "dmltk", "run", *words, "--out"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    process = subprocess.Popen([*command, str(cut)], **quiet)
    deadline = time.monotonic() + 120
    while not (cut / "checkpoint.previous.safetensors").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (cut / "results.json").exists()
    subprocess.run([*command, str(cut), "--resume"], check=True, **quiet)
    subprocess.run([*command, str(whole)], check=True, **quiet)
    assert same(whole, cut)
    read = [json.loads((f / "results.json").read_text())["evaluations"] for f in (whole, cut)]
    assert read[0] == read[1]


def test_a_torn_checkpoint_gives_way_to_the_one_before(finished: Path, tmp_path: Path) -> None:
    go(tmp_path / "torn")
    for name in ("results.json", "model.safetensors"):
        (tmp_path / "torn" / name).unlink()
    whole = tmp_path / "torn" / checkpoint.NAME
    whole.write_bytes(whole.read_bytes()[:1000])
    go(tmp_path / "torn", "resume")
    assert same(finished, tmp_path / "torn")
    whole.write_bytes(b"")
    (tmp_path / "torn" / checkpoint.PREVIOUS).write_bytes(b"")
    with pytest.raises(DmltkError, match="no checkpoint in .* can be read"):
        go(tmp_path / "torn", "resume")


def test_resuming_keeps_proxies_and_their_optimizer(tmp_path: Path) -> None:
    """Losses with parameters are trained, saved and put back (arcface)."""
    given = {"loss": "arcface", "pipeline": "st", "protocol": ("clean",)}
    go(tmp_path / "whole", **given)
    saved = load_file(tmp_path / "whole" / checkpoint.NAME)
    assert any(key.startswith("losses.0.") for key in saved)
    assert any(key.startswith("optimizer.losses.0.") for key in saved)

    out = interrupted(tmp_path / "cut", **given)
    go(out, "resume", **given)
    one, two = load_file(tmp_path / "whole" / checkpoint.NAME), load_file(out / checkpoint.NAME)
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("optimizer", ["sgd", "lars"])
def test_other_optimizers_go_on_to_the_same_bits(optimizer: str, tmp_path: Path) -> None:
    given = {"pipeline": "st", "protocol": ("clean",), "optimizer": optimizer, "lr": ".1"}
    go(tmp_path / "whole", **given)

    out = interrupted(tmp_path / "cut", **given)
    go(out, "resume", **given)
    assert same(tmp_path / "whole", out)
    saved = load_file(out / checkpoint.NAME)
    assert any(key.endswith("/momentum_buffer") for key in saved)


def test_plain_descent_is_weights_minus_rate_times_gradient() -> None:
    from dmltk.training.optimizer import make_optimizer

    plain = {"optimizer": "sgd", "momentum": "0", "weight_decay": "0", "lr": ".5"}
    config, _ = assemble(flags(**{**SMALL, **plain, "pipeline": "siamese", "out": "x"}))
    ready = prepare(config)
    optimizer = make_optimizer(config, ready.model, ready.trainer.parts.losses)
    before = {name: p.detach().clone() for name, p in ready.model.named_parameters()}
    for parameter in ready.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, parameter in ready.model.named_parameters():
        assert torch.equal(parameter, before[name] - 0.5)


def test_parameter_groups_have_their_own_rates() -> None:
    from dmltk.training.optimizer import make_optimizer

    config, _ = assemble(
        flags(**{**SMALL, "lr": "1/1000", "head_lr": ".01", "loss": "arcface", "out": "x"})
    )
    ready = prepare(config)
    optimizer = make_optimizer(config, ready.model, ready.trainer.parts.losses)
    rates = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert rates == [(0.001, 4e-4), (0.01, 4e-4), (5e-4, 0.0)]
    grouped = [id(p) for group in optimizer.param_groups for p in group["params"]]
    every = [*ready.model.parameters(), *ready.trainer.parts.losses.parameters()]
    assert sorted(grouped) == sorted(map(id, every))


def test_the_schedule_warms_up_and_ends_at_nothing() -> None:
    from dmltk.training.optimizer import Schedule

    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = Schedule(optimizer, warmup=4, total=20)
    rates = []
    for step in range(20):
        schedule.set(step)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[:3] == pytest.approx([0.25, 0.5, 0.75])
    assert max(rates) == pytest.approx(
        0.5 * (1 + torch.cos(torch.tensor(torch.pi * 4 / 20))).item()
    )
    assert rates[3:] == sorted(rates[3:], reverse=True) and rates[-1] < 0.01


def test_a_constant_rate_stays_after_its_warm_up() -> None:
    from dmltk.training.optimizer import Schedule

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    for warmup, first in ((4, [0.25, 0.5, 0.75]), (0, [1.0, 1.0, 1.0])):
        schedule, rates = Schedule(optimizer, warmup, 20, "constant"), []
        for step in range(20):
            schedule.set(step)
            rates.append(optimizer.param_groups[0]["lr"])
        assert rates == pytest.approx(first + [1.0] * 17)


def test_the_evaluation_takes_the_largest_training_eps() -> None:
    given = {**SMALL, "attack": ("stax:eps=1/255", "mtax:eps=3/255"), "eps": "8/255", "out": "x"}
    given["eval_attack"] = ("stax", "fgsm:eps=1/10")
    trials = prepare(assemble(flags(**given))[0]).trials
    assert [float(trial.attack.threat.eps) for trial in trials] == pytest.approx([3 / 255, 0.1])
    standard = {**SMALL, "pipeline": "st", "eps": "2/255", "eval_attack": ("stax",), "out": "x"}
    trials = prepare(assemble(flags(**standard))[0]).trials
    assert float(trials[0].attack.threat.eps) == pytest.approx(2 / 255)


def test_evaluation_aims_at_the_whole_test_set_and_training_at_the_batch() -> None:
    ready = prepare(assemble(flags(**SMALL, out="x"))[0])
    assert ready.trials[0].attack.goal.targets_from == "reference"
    assert ready.trainer.parts.attacks["stax"].goal.targets_from == "batch"


def test_a_model_of_one_size_takes_that_of_the_data_set() -> None:
    given = {**SMALL, "model": "timm:test_vit", "bn": "kway:layers=ln", "out": "x"}
    prepare(assemble(flags(**{**given, "dataset": "glyphs:classes=12,per_class=6,size=48"}))[0])
    ready = prepare(assemble(flags(**{**given, "dataset": "glyphs:classes=12", "size": "32"}))[0])
    assert ready.model.size == ready.dataset.card["size"] == 32


def test_limit_attacks_so_many_queries(tmp_path: Path) -> None:
    results = go(tmp_path / "few", limit="10")
    query = results["evaluations"][1]
    assert [e["protocol"] for e in results["evaluations"]] == ["clean", "query"]
    assert query["counts"]["queries"] == 10
    with pytest.raises(UserError, match="cannot go with --limit 10"):
        go(tmp_path / "both", limit="10", protocol=("all",))
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attack": ("stx",)}, "did you mean 'stax'"),
        ({"attack": ("mtax:target=3",)}, "did you mean 'targets'"),
        ({"attack": ("stax:eps=2",)}, "eps=2"),
        ({"eps": "9"}, r"eps=9: expected float <= 1"),
        ({"epochs": "-1"}, r"epochs=-1: expected int >= 0"),
        ({"batch": "13"}, "multiple of per_class"),
        ({"dataset": "glyphs:classes=1"}, "class"),
        ({"dataset": "glyphs:classes=2"}, "no other class to aim at"),
        ({"settings": ("terms.0.labels=style",)}, "the batch has no 'style'"),
        ({"loss": "vicreg", "pipeline": "st"}, "vicreg"),
        ({"route_lr": ("mtx=1",)}, "did you mean 'mtax'"),
        ({"patience": "2"}, "needs validation classes"),
        ({"dataset": "folder:/no/such/folder"}, "no folder"),
        ({"bn": "kway", "model": "timm:test_vit"}, "--bn kway:layers=ln"),
        ({"device": "cuda:99"}, "no device"),
        ({"model": "smallconv:weights=/no/file.pt"}, "no such file"),
        ({"protocol": ("al",)}, "unknown protocol 'al'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        go(tmp_path / "never", **given)
    assert not (tmp_path / "never").exists()


def test_a_folder_is_never_overwritten_without_being_told(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--resume, replace it with --overwrite"):
        RunFolder(finished)
    (tmp_path / "precious.txt").write_text("mine")
    for mode in ("overwrite", "resume"):
        with pytest.raises(UserError, match="not a run's folder"):
            RunFolder(tmp_path, mode)  # type: ignore[arg-type]
    assert (tmp_path / "precious.txt").read_text() == "mine"
    with pytest.raises(UserError, match="is a file"):
        RunFolder(tmp_path / "precious.txt")


def test_resume_refuses_another_run(finished: Path) -> None:
    with pytest.raises(UserError, match="whose seed is '0', not '3'"):
        assemble(flags(**{**SMALL, "out": str(finished), "seed": "3", "resume": True}))
    config, _ = assemble(flags(out=str(finished), resume=True))
    assert config == load(finished / "config.yaml")


def test_a_config_round_trips_and_may_not_import(tmp_path: Path) -> None:
    config = Config(pipelines.build("mdprop"), eps=3 / 255)
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml())
    assert load(file) == config
    risky = config.to_yaml().replace("dataset: glyphs", "dataset: my.data:Mine")
    file.write_text(risky)
    with pytest.raises(UserError, match="would import 'my.data:Mine': add --allow-import my"):
        load(file)
    assert load(file, ("my",)).dataset == "my.data:Mine"


def test_success_is_the_share_of_found_queries_that_are_lost(finished: Path) -> None:
    """Recomputed from the saved model with the attack's own pictures."""
    ready = prepare(load(finished / "config.yaml"))
    from dmltk.training.run import judge

    embedder = models.build(SMALL["model"], dim=64, weights=str(finished / "model.safetensors"))
    judging = judge(ready, lambda *_: None)
    embedder.eval()
    clean = judging.embed(embedder)
    adversarial, _ = judging.attack(embedder, ready.trials[0], clean)
    rows = torch.arange(len(clean.labels))
    z, y = clean.embeddings, clean.labels
    before = first_hits(z, z, y, y, rows) == 1
    after = first_hits(adversarial.embeddings, z, y, y, rows) == 1
    expected = float((before & ~after).sum() / before.sum())
    results = json.loads((finished / "results.json").read_text())
    assert results["evaluations"][1]["attack_stats"]["success"] == pytest.approx(expected)


def test_validation_classes_choose_the_weights_and_end_the_run(tmp_path: Path) -> None:
    given = {**SMALL, "dataset": SMALL["dataset"] + ",val=1/3", "epochs": "9", "patience": "1"}
    results = go(tmp_path / "r", **given, pipeline="st", protocol=("clean",))
    lines = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    scores = [line["validation"] for line in lines]
    assert len(lines) < 9 or scores[-1] > max(scores[:-1])
    assert max(scores) == max(scores[:-1] or scores)
    assert [e["weights"] for e in results["evaluations"]] == ["best", "last"]
    kept = bits(tmp_path / "r")
    best = load_file(tmp_path / "r" / "best.safetensors")
    assert all(torch.equal(kept[key], best[key]) for key in kept)
    with pytest.raises(UserError, match=r"patience=2 needs validation classes: write .*val=\.2"):
        go(tmp_path / "never", patience="2")


def test_seeds_are_runs_of_their_own_and_their_mean(tmp_path: Path) -> None:
    given = {"pipeline": "st", "epochs": "1", "protocol": ("clean", "query")}
    config, out = assemble(flags(**{**SMALL, **given, "seeds": "0, 3", "out": str(tmp_path / "r")}))
    results = repeat(config, RunFolder(out), lambda *_: None, lambda _: None)
    single = go(tmp_path / "three", **given, seed="3")
    inner = json.loads((out / "seed-3" / "results.json").read_text())
    assert inner["evaluations"] == json.loads(json.dumps(single["evaluations"]))
    other = json.loads((out / "seed-0" / "results.json").read_text())
    for both, *each in zip(
        results["evaluations"], other["evaluations"], inner["evaluations"], strict=True
    ):
        values = [e["metrics"]["map@r"] for e in each]
        assert both["metrics"]["map@r"] == pytest.approx(sum(values) / 2)
        assert both["deviation"]["map@r"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    again = repeat(config, RunFolder(out, "resume"), pytest.fail, pytest.fail)
    assert again["evaluations"] == results["evaluations"]


def test_bf16_trains_and_leaves_attacks_and_losses_in_float32(tmp_path: Path) -> None:
    exact = go(tmp_path / "exact", protocol=("clean",))
    fast = go(tmp_path / "fast", amp="bf16", protocol=("clean",))
    assert not same(tmp_path / "exact", tmp_path / "fast")
    assert all(value.dtype != torch.bfloat16 for value in bits(tmp_path / "fast").values())
    log = [
        (tmp_path / name / "log.jsonl").read_text().splitlines()[0] for name in ("exact", "fast")
    ]
    assert json.loads(log[1])["loss"] == pytest.approx(json.loads(log[0])["loss"], rel=0.1)
    assert exact["config"]["amp"] == "off" and fast["config"]["amp"] == "bf16"


def test_channels_last_changes_the_memory_format_alone(finished: Path, tmp_path: Path) -> None:
    results = go(tmp_path / "r", channels_last="on")
    before = json.loads((finished / "results.json").read_text())
    for ours, theirs in zip(results["evaluations"], before["evaluations"], strict=True):
        assert ours["metrics"]["map@r"] == pytest.approx(theirs["metrics"]["map@r"], abs=0.1)
    assert bits(finished).keys() == bits(tmp_path / "r").keys()


def test_routes_may_have_rates_of_their_own() -> None:
    from dmltk.training.optimizer import make_optimizer

    config, _ = assemble(flags(**SMALL, route_lr=("mtax=1e-7",), out="x"))
    ready = prepare(config)
    groups = make_optimizer(config, ready.model, ready.trainer.parts.losses).param_groups
    held = {id(p) for p in ready.model.sets.get_submodule("mtax").parameters()}
    assert [g["lr"] for g in groups] == [config.lr, config.lr, 1e-7]
    assert {id(p) for p in groups[2]["params"]} == held and held
    every = [id(p) for group in groups for p in group["params"]]
    assert len(every) == len(set(every)) == len(list(ready.model.parameters()))
    for text, said in (("mtx=1", "did you mean 'mtax'"), ("main=1", "no normalisers of its own")):
        with pytest.raises(UserError, match=said):
            prepare(assemble(flags(**SMALL, route_lr=(text,), out="x"))[0])
    with pytest.raises(UserError, match="route=rate"):
        assemble(flags(**SMALL, route_lr=("mtax",), out="x"))


def test_a_gradient_is_clipped_to_its_norm(tmp_path: Path) -> None:
    seen: list[float] = []
    original = torch.nn.utils.clip_grad_norm_

    def noted(parameters: Any, limit: float) -> torch.Tensor:
        parameters = list(parameters)
        norm = original(parameters, limit)
        squares = [p.grad.square().sum() for p in parameters if p.grad is not None]
        seen.append(float(torch.stack(squares).sum().sqrt()))
        return norm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", noted)
        go(tmp_path / "r", clip="1/100", protocol=("clean",))
    assert seen and max(seen) <= 0.01 + 1e-6


def test_what_is_not_finite_stops_with_step_and_last_good_state(tmp_path: Path) -> None:
    register()
    out = tmp_path / "r"
    go(out, pipeline="st", epochs="1", protocol=("clean",))
    (out / "results.json").unlink()
    text = (out / "config.yaml").read_text().replace("epochs: 1\n", "epochs: 3\n")
    (out / "config.yaml").write_text(text.replace("\nlr: 0.002", "\nlr: 1.0e+38"))
    config = load(out / "config.yaml")
    with pytest.raises(DmltkError, match=r"at step \d+.*last good state is in .*checkpoint"):
        run(config, RunFolder(out, "resume"), lambda *_: None, lambda _: None)


def test_sigterm_saves_within_the_epoch_and_says_how_to_go_on(
    finished: Path, tmp_path: Path
) -> None:
    from dmltk.training.stop import Stopped

    def progress(doing: str, done: int, total: int) -> None:
        if doing == "train" and done == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    config, out = assemble(flags(**SMALL, out=str(tmp_path / "cut")))
    with pytest.raises(Stopped, match="stopped after step 5 of 6 .* --resume goes on"):
        run(config, RunFolder(out), progress, lambda _: None)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    go(out, "resume")
    assert same(finished, out)
    logs = [
        [{**json.loads(line), "seconds": 0} for line in (f / "log.jsonl").read_text().splitlines()]
        for f in (finished, out)
    ]
    assert logs[0] == logs[1]


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    from safetensors import SafetensorError

    go(tmp_path / "r", epochs="1", protocol=("clean",))
    before = (tmp_path / "r" / checkpoint.NAME).read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("I/O error: No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "save_file", full)
        with pytest.raises(DmltkError, match="make room and use --resume"):
            stored.write(tmp_path / "r" / checkpoint.NAME, {"a": torch.zeros(1)}, {})
    assert (tmp_path / "r" / checkpoint.NAME).read_bytes() == before
    assert not [p for p in (tmp_path / "r").iterdir() if p.name.startswith(".")]


def test_the_csv_log_holds_what_the_json_log_holds(finished: Path) -> None:
    import csv

    with (finished / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert [float(row["loss"]) for row in rows] == [line["loss"] for line in lines]
    assert [float(row["terms.0"]) for row in rows] == [line["terms"][0] for line in lines]


def test_a_run_is_a_source_of_models(finished: Path) -> None:
    """`run:DIR` builds the saved embedder again, with its heads and figures."""
    given = models.build(SMALL["model"], dim=64, weights=str(finished / "model.safetensors"))
    again = models.build(f"run:'{finished}'")
    pictures = torch.rand(3, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(again.eval()(pictures), given.eval()(pictures))


def test_workers_change_nothing_and_a_training_transform_does(
    finished: Path, tmp_path: Path
) -> None:
    go(tmp_path / "workers", workers="1", protocol=("clean",))
    assert same(finished, tmp_path / "workers")
    go(tmp_path / "flipped", augment="chain:[crop,flip]", protocol=("clean",))
    assert not same(finished, tmp_path / "flipped")
    go(tmp_path / "drawn", with_replacement=True, protocol=("clean",))
    assert not same(finished, tmp_path / "drawn")
