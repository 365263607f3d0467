"""The attack by its spec: names, goals, bounds, and what is said where something is wrong."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from dmltk import registry
from dmltk.__main__ import main
from dmltk.attacks import Flee, Misrank, Mtax, Stax, Terms
from dmltk.errors import UserError
from dmltk_torchattacks.bank import Centres, Nothing


def build(spec: str, **context):
    return registry.build("attacks", f"torchattacks:{spec}", context=context)


def test_a_class_is_named_first_and_takes_its_own_arguments():
    attack = build("PGD,steps=40,alpha=1/255,random_start=false")
    assert attack.solver.name == "PGD"
    assert attack.solver.arguments == {"steps": 40, "alpha": 1 / 255, "random_start": False}
    assert attack.goal == Stax()


@pytest.mark.parametrize("name", ["pgd", "Pgd"])
def test_upper_and_lower_case_are_one(name):
    assert build(name).solver.name == "PGD"


@pytest.mark.parametrize(
    ("spec", "goal"),
    [
        ("PGD,goal=mtax(targets=3)", Mtax(3)),
        ("PGD,goal=mtax,targets=3", Mtax(3)),
        ("PGD,goal=mtax(3)", Mtax(3)),
        ("PGD,power=1", Stax(power=1)),
        ("PGD,goal=misrank(every=2)", Misrank(2)),
        ("PGD,targets_from=reference", Stax(targets_from="reference")),
        ("PGD,goal=mtax,targets_from=reference", Mtax(targets_from="reference")),
    ],
)
def test_goals(spec, goal):
    assert build(spec).goal == goal


def test_a_built_goal_is_taken():
    attack = registry.build("attacks", "torchattacks:PGD", goal=Mtax(2))
    assert attack.goal == Mtax(2)


def test_a_goal_of_a_bank_names_the_class_to_reach():
    goal = build("CW,goal=mtax(targets=3),temperature=1/2", targets_from="reference").goal
    assert isinstance(goal, Centres)
    assert goal.goal == Mtax(3, targets_from="reference")
    assert (goal.targets_from, goal.temperature) == ("reference", 0.5)
    assert build("CW").goal.goal is None


def test_noise_has_no_goal():
    assert build("GN,std=.2").goal == Nothing()


@pytest.mark.parametrize(
    ("spec", "context", "norm", "eps"),
    [
        ("PGD", {}, "linf", 8 / 255),
        ("PGD", {"eps": 2 / 255}, "linf", 2 / 255),
        ("PGD,eps=1/255", {"eps": 2 / 255}, "linf", 1 / 255),
        ("PIFGSM", {}, "linf", 16 / 255),
        ("PIFGSM,eps=1/255", {}, "linf", 1 / 255),
        ("PGDL2", {}, "l2", 1.0),
        ("APGD,norm=l2,eps=2", {}, "l2", 2.0),
        ("SPSA", {}, "linf", 0.3),
    ],
)
def test_the_threat_is_the_class_s(spec, context, norm, eps):
    threat = build(spec, **context).threat
    assert (threat.norm, threat.eps) == (norm, eps)


@pytest.mark.parametrize("name", ["CW", "DeepFool", "JSMA", "OnePixel", "GN"])
def test_a_class_without_a_bound_has_the_box_alone(name):
    assert build(name, eps=1 / 255).threat.norm == "none"
    with pytest.raises(UserError, match="unknown argument 'eps'"):
        build(f"{name},eps=1/255")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("PDG", "unknown class 'PDG' in torchattacks; did you mean 'PGD'"),
        ("PGD,step=3", "unknown argument 'step'.*did you mean 'steps'"),
        ("PGD,steps=-1", "steps=-1: expected int >= 0"),
        ("PGD,eps=-1", "eps=-1: expected float >= 0"),
        ("PGD,eps=3", r"eps=3 is outside \[0, 1\]"),
        ("PGD,seed=3", "unknown argument 'seed'"),
        ("PGD,goal=stx", "unknown goal 'stx'.*did you mean 'stax'"),
        ("PGD,goal=mtax(targets=3),targets=2", "unknown argument 'targets'"),
        ("UPGD,loss=ce", "unknown argument 'loss'"),
        ("APGD,loss=margin", "unknown value 'margin'"),
        ("APGD,goal=stax", "unknown argument 'goal'"),
        ("EADL1,max_iterations=9", "expected int >= 10"),
        ("PGDRS,noise_type=normal", "unknown value 'normal'"),
        ("CW,temperature=0", "expected float > 0"),
    ],
)
def test_what_is_wrong_is_said(spec, said):
    with pytest.raises(UserError, match=said):
        build(spec)


def test_a_class_without_a_name_is_asked_for():
    with pytest.raises(UserError, match="name"):
        registry.build("attacks", "torchattacks")


@pytest.mark.parametrize("name", ["BIM", "VMIFGSM", "PGD,random_start=false", "UPGD"])
def test_flee_is_refused_where_the_start_is_clean(name):
    with pytest.raises(UserError, match="flee has no gradient at the clean pictures"):
        build(f"{name},goal=flee")


@pytest.mark.parametrize("name", ["PGD", "RFGSM", "PGDRS", "UPGD,random_start=true"])
def test_flee_is_taken_elsewhere(name):
    assert build(f"{name},goal=flee").goal == Flee()


def test_the_objective_of_a_pipeline_can_take_the_goal_s_place():
    """Training exchanges an attack's goal for the terms of its branch."""
    attack = build("PGD,steps=2")
    assert attack.restarts == 1 and getattr(attack.solver, "select", "last") == "last"
    assert dataclasses.replace(attack, goal=Terms).goal is Terms


def test_a_missing_torchattacks_is_told_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    with pytest.raises(UserError, match="run `pip install --no-deps torchattacks`"):
        build("PGD")


def test_its_pinned_dependencies_are_not_needed():
    """It pins requests~=2.25.1 and imports neither that nor, where it lacks, tqdm."""
    code = """
import sys
sys.modules |= {"requests": None, "tqdm": None, "torchvision": None}
import torchattacks
print(torchattacks.PGD.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "PGD"


def test_the_command_line_lists_it_and_shows_a_class(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["list", "attacks"])
    assert "dmltk-torchattacks" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["show", "attack", "torchattacks:name=PGD"])
    assert "random_start" in capsys.readouterr().out
