from __future__ import annotations

from dataclasses import dataclass

import dmltk
import pytest
from dmltk import PluginError, Spec, UserError, registry
from dmltk.attacks import (
    Apgd,
    Attack,
    Flee,
    Misrank,
    Mtax,
    Nes,
    Noise,
    Square,
    Stax,
    Threat,
    Tma,
    bim,
    build,
    fgsm,
    mim,
    pgd,
)
from dmltk.attacks.named import Composed

EPS = 8 / 255


@pytest.mark.parametrize(
    ("spec", "goal", "solver"),
    [
        ("stax", Stax(), bim(steps=1)),
        ("mtax", Mtax(5), bim(steps=1)),
        ("mtax:3", Mtax(3), bim(steps=1)),
        ("mtax:targets=5,steps=1", Mtax(5), bim(steps=1)),
        ("stax:steps=7", Stax(), bim(steps=7)),
        ("stax:steps=7,alpha=1/255", Stax(), bim(steps=7, alpha=1 / 255)),
        ("stax:solver=bim", Stax(), bim()),
        ("stax:solver=pgd", Stax(), pgd()),
        ("stax:solver=pgd,steps=20,gain=1,start=0,select=last", Stax(),
         pgd(20, gain=1, start=0, select="last")),
        ("stax:solver=pgd(steps=20),eps=8/255", Stax(), pgd(20)),
        ("stax:solver=pgd(20),gain=1", Stax(), pgd(20, gain=1)),
        ("stax:solver=pgd(start=none)", Stax(), pgd()),
        ("stax:solver=mim,decay=.5", Stax(), mim(decay=0.5)),
        ("stax:solver=fgsm", Stax(), fgsm()),
        ("stax:pick=permutation,power=1", Stax(1, pick="permutation"), bim(steps=1)),
        ("pgd", Stax(), pgd()),
        ("pgd:40", Stax(), pgd(40)),
        ("pgd:goal=flee", Flee(), pgd()),
        ("pgd:goal=mtax,targets=3,steps=7", Mtax(3), pgd(7)),
        ("pgd:goal=mtax(3),steps=7", Mtax(3), pgd(7)),
        ("pgd:goal=mtax(targets=3,power=1),targets_from=reference", Mtax(3, 1, "reference"), pgd()),
        ("bim", Stax(), bim()),
        ("fgsm:goal=mtax", Mtax(), fgsm()),
        ("mim:decay=0", Stax(), mim(decay=0)),
        ("tma", Tma(), bim(steps=1)),
        ("tma:pick=nearest,solver=pgd", Tma(pick="nearest"), pgd()),
        ("flee", Flee(), pgd()),
        ("flee:steps=3", Flee(), pgd(3)),
        ("flee:solver=apgd,steps=3", Flee(), Apgd(3)),
        ("misrank:every=5", Misrank(5), pgd()),
        ("misrank:2,solver=bim", Misrank(2), bim()),
        ("apgd", Stax(), Apgd()),
        ("apgd:20,goal=misrank,every=3", Misrank(3), Apgd(20)),
        ("nes", Stax(), Nes()),
        ("nes:500,population=10,sigma=1/255,grid=8", Stax(), Nes(500, 10, 1 / 255, grid=8)),
        ("square:goal=flee,p=.05", Flee(), Square(p=0.05)),
        ("stax:solver=square(300)", Stax(), Square(300)),
        ("noise:20,draw=sign,goal=flee", Flee(), Noise(20, "sign")),
        ("misrank:solver=noise", Misrank(), Noise()),
    ],
)  # fmt: skip
def test_a_spec_composes_goal_and_solver(spec, goal, solver):
    attack = build(spec)
    assert attack == Attack(goal, solver, Threat(EPS))


def test_the_attacks_own_arguments_are_taken_beside_those_of_its_parts():
    attack = build("pgd:eps=4/255,norm=linf,restarts=3,mode=train,eot=2")
    assert attack == Attack(Stax(), pgd(), Threat(4 / 255), 3, "train", 2)
    assert build("stax", context={"eps": 0.5, "device": "cpu"}).threat.eps == 0.5
    assert build("stax:eps=.1", context={"eps": 0.5}).threat.eps == 0.1


@pytest.mark.parametrize(
    ("spec", "threat"),
    [
        ("stax:norm=l2,eps=3", Threat(3.0, "l2")),
        ("stax:norm=none", Threat(EPS, "none")),
        ("stax:quantize=8", Threat(EPS, quantize=8)),
        ("stax:quantize=none", Threat(EPS)),
        ("stax:eps=[8/255,.1,0]", Threat((8 / 255, 0.1, 0.0))),
    ],
)
def test_a_threat_is_written_beside_the_parts(spec, threat):
    assert build(spec).threat == threat


def test_python_values_specs_and_built_parts_are_taken():
    assert build("pgd", goal=Spec("mtax", (), {"targets": "2"})).goal == Mtax(2)
    assert build("pgd", goal=Flee(), steps=3) == Attack(Flee(), pgd(3))
    factory = registry.factory("attacks", "mtax")
    assert factory(targets=2, solver="pgd", steps=3) == Attack(Mtax(2), pgd(3))
    with pytest.raises(UserError, match="unknown argument 'stps'"):
        factory(stps=3)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("stax:solver=pgd(steps=20),steps=10", "'steps' is given twice"),
        ("stax:solver=pgd(20),steps=10", "'steps' is given twice"),
        ("pgd:goal=mtax(2),targets=3", "'targets' is given twice"),
        ("stax:targets=3", "unknown argument 'targets'"),
        ("stax:goal=flee", "unknown argument 'goal'"),
        ("stax:gain=2", "unknown argument 'gain'"),
        ("stax:solver=pgdd", "did you mean 'pgd'"),
        ("pgd:goal=fle", "did you mean 'flee'"),
        ("pgd:goal=mtax(target=3)", "did you mean 'targets'"),
        ("bim:goal=flee", "random start"),
        ("stax:eps=8", "eps"),
        ("stax:eps=-1/255", "eps"),
        ("stax:solver=pgd(steps=-1)", "steps"),
        ("mtax:0", "targets"),
        ("mtax:power=3", "power"),
        ("stax:norm=l7", "norm"),
        ("stax:norm=linf,eps=1.01", "eps=1.01 is outside"),
        ("stax:eps=[.1,2]", "eps=2 is outside"),
        ("stax:eps=[.1,-1]", "eps"),
        ("stax:eps=[.1,.2],norm=l2", "norm=linf"),
        ("stax:eps=much", "eps"),
        ("stax:quantize=7", "quantize"),
        ("flee:solver=bim", "random start"),
        ("misrank:0", "every"),
        ("apgd:steps=-1", "steps"),
        ("apgd:select=last", "unknown argument 'select'"),
        ("nes:population=7", "population"),
        ("nes:20", "pay for no step"),
        ("square:queries=-1", "queries"),
        ("square:p=0", "p=0"),
        ("noise:tries=0", "tries"),
        ("noise:draw=normal", "draw"),
        ("pgd:restarts=0", "restarts"),
        ("pgd:goal=flee(3)", "'3' stands for no free argument"),
    ],
)
def test_what_cannot_be_composed_is_said(spec, named):
    with pytest.raises(UserError, match=named):
        build(spec)


def test_the_merged_parameters_are_those_of_the_parts_that_are_given():
    def names(given):
        return list(registry.signature(registry.factory("attacks", "mtax"), given).parameters)

    own = ["eps", "norm", "quantize", "restarts", "mode", "eot"]
    goal = ["targets", "power", "targets_from", "pick", "solver"]
    assert names({}) == [*goal, "steps", "alpha", *own]
    assert names({"solver": "mim"}) == [*goal, "steps", "alpha", "decay", *own]
    assert names({"solver": "mim(steps=2)"}) == [*goal, "alpha", "decay", *own]
    defaults = registry.signature(registry.factory("attacks", "stax")).parameters
    assert defaults["steps"].default == 1 and defaults["eps"].default == EPS


def test_parts_that_share_a_parameter_take_it_nested():
    @dataclass(frozen=True)
    class Twin:
        steps: int = 3

        def prepare(self, probe, batch, generator):
            return lambda z: z.sum(1)

    dmltk.register("goals", "twin", Twin)
    assert build("pgd:goal=twin").goal == Twin(3)
    assert build("pgd:goal=twin(steps=5),steps=7") == Attack(Twin(5), pgd(7))
    with pytest.raises(PluginError, match="both the goal and the solver take 'steps'"):
        build("pgd:goal=twin,steps=7")


@pytest.mark.parametrize("name", ["stax", "mtax", "tma", "flee", "misrank",
                                  "fgsm", "bim", "pgd", "mim", "apgd",
                                  "nes", "square", "noise"])  # fmt: skip
def test_every_parameter_of_a_named_attack_is_described(name):
    shown = dmltk.describe("attack", name)
    assert shown.source and len(shown.summary) > 20
    assert all(parameter.meaning for parameter in shown.parameters)
    assert isinstance(registry.factory("attacks", name), Composed)


@pytest.mark.parametrize(("kind", "name"), [
    ("goal", n) for n in ("stax", "mtax", "tma", "flee", "misrank", "terms")] + [
    ("solver", n) for n in ("fgsm", "bim", "pgd", "mim", "apgd",
                            "nes", "square", "noise")])  # fmt: skip
def test_every_part_is_described(kind, name):
    shown = dmltk.describe(kind, name)
    assert shown.source and all(parameter.meaning for parameter in shown.parameters)
