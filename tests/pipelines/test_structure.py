"""Pipelines as data: reading, writing, checks, and the flags that compose them."""

from __future__ import annotations

from pathlib import Path

import pytest
from dmltk import pipelines
from dmltk.errors import UserError
from dmltk.pipelines import Branch, Pipeline, Ramp, Term
from dmltk.pipelines.compose import unique_names
from hypothesis import given
from hypothesis import strategies as st

PRESETS = [
    "st",
    "at",
    "at:join=cat",
    "at:attack='mtax:targets=3'",
    "advprop-d",
    "mdprop",
    "mdprop:stax=false,mtax=[3]",
    "mdprop:mtax=[3,5],start=paper",
    "mdprop-authors",
    "simclr",
    "coreacl",
    "coreacl:loss='ainfonce:alpha=.2,temperature=.3',attack='pgd:steps=2,select=last'",
    "coreacl:loss='ainfonce:alpha=.2,alpha_warm=5,alpha_least=.5'",
    "rocl",
    "acl",
    "dynacl:steps=20,every=5",
    "advcl:clusters=[2,5]",
    "siamese",
    "siamese:margin=2,pairs=adjacent,lr_per_margin=true,dim=2",
    "classifier",
]


@pytest.mark.parametrize("spec", PRESETS)
def test_named_pipelines_round_trip_through_yaml(spec: str) -> None:
    pipeline = pipelines.build(spec)
    assert pipelines.from_yaml(pipeline.to_yaml()) == pipeline


weights = st.floats(0, 10) | st.builds(Ramp, st.floats(0, 2), st.floats(0, 2), st.integers(1, 9))
terms = st.builds(
    Term,
    st.just("multisimilarity:alpha=2"),
    st.just(("main", "adv.proj|stop")),
    st.sampled_from(["each", "cat", "args"]),
    weights,
    st.integers(0, 9),
    st.sampled_from(["labels", "index", "style"]),
)


@given(terms, st.floats(0, 0.4), st.floats(0.5, 1), st.booleans())
def test_any_field_survives_yaml(term: Term, first: float, last: float, ema: bool) -> None:
    branches = {
        "main": Branch(),
        "adv": Branch(attack="stax", route="adv", take=(first, last), ema=ema),
    }
    pipeline = Pipeline(branches, (term,), "dual", {"proj": pipelines.Head(dim=8, hidden=4)})
    assert pipelines.from_yaml(pipeline.to_yaml()) == pipeline


def test_flags_are_sugar_for_the_named_methods() -> None:
    resolve = pipelines.resolve
    assert resolve() == pipelines.build("mdprop")
    steps = ["stax:steps=1", "mtax:targets=5,steps=1"]
    assert resolve(attacks=steps) == pipelines.build("mdprop")
    assert resolve(attacks=steps[:1], norms="shared") == pipelines.build("at")
    assert resolve(attacks=steps[:1], norms="dual") == pipelines.build("advprop-d")
    assert resolve(pipeline="st") == pipelines.compose()
    three = resolve(attacks=["stax", "mtax:targets=5"], norms="kway")
    assert three.routes == ["main", "stax", "mtax"]
    assert resolve(attacks=["mtax:targets=3", "mtax:targets=5"]).routes == ["main", "mtax", "mtax2"]


def test_set_changes_any_field() -> None:
    found = pipelines.resolve(
        settings=[
            "terms.0.weight={from: 0, to: 1, steps: 10}",
            "branches.stax.take=[0,1/2]",
            "branches.mtax.attack=mtax:targets=2",
            "norms=dual",
        ]
    )
    assert found.terms[0].weight == Ramp(0, 1, 10)
    assert found.branches["stax"].take == (0, 0.5)
    assert found.branches["mtax"].attack == "mtax:targets=2"
    assert found.norms == "dual"


def test_loss_and_norms_change_any_pipeline() -> None:
    found = pipelines.resolve(pipeline="mdprop", loss="ntxent", norms="shared")
    assert (found.terms[0].loss, found.norms) == ("ntxent", "shared")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pipeline": "mdpro"}, "did you mean 'mdprop'"),
        ({"pipeline": "mdprop:mtx=[3]"}, "did you mean 'mtax'"),
        ({"pipeline": "mdprop:mtax=[0]"}, ">= 1"),
        ({"pipeline": "mdprop:stax=false,mtax=[]"}, "write st instead"),
        ({"pipeline": "st", "attacks": ["stax"]}, "cannot go with --pipeline"),
        ({"pipeline": "none.yaml"}, "no pipeline file"),
        ({"settings": ["terms.3.weight=2"]}, "no '3' in terms.3.weight"),
        ({"settings": ["terms.0.wight=2"]}, "did you mean 'weight'"),
        ({"settings": ["norms.x=2"]}, "plain value"),
        ({"settings": ["terms"]}, "path=value"),
    ],
)
def test_flags_that_cannot_be_are_refused(arguments: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        pipelines.resolve(**arguments)


BROKEN = {
    "circle": ("{a: {source: [b]}, b: {source: [a]}, main: {}}", "[main, a]", "circle"),
    "unknown source": ("{main: {source: [x]}}", "[main]", "unknown branch 'x'"),
    "unknown reference": ("{main: {}}", "[man]", "did you mean 'main'"),
    "unused branch": ("{main: {}, a: {}}", "[main]", "'a' is used by no term"),
    "unknown head": ("{main: {}}", "[main.proj]", "unknown head 'proj'"),
    "both": ("{main: {attack: stax, augment: flip}}", "[main]", "attack and an augment"),
    "objective alone": (
        "{main: {objective: [{loss: ntxent, of: [self]}]}}",
        "[main]",
        "no attack to climb",
    ),
    "objective without self": (
        "{main: {}, a: {attack: pgd, objective: [{loss: ntxent, of: [main]}]}}",
        "[main, a]",
        "does not name self",
    ),
    "objective naming itself": (
        "{main: {}, a: {attack: pgd, objective: [{loss: ntxent, of: [self, a]}]}}",
        "[main, a]",
        "the attacked branch is called self",
    ),
    "take": ("{main: {take: [1/2, 1/4]}}", "[main]", "two fractions"),
    "all stopped": ("{main: {}}", "['main|stop']", "stops every gradient"),
    "bad mark": ("{main: {}}", "['main|stp']", "only 'stop'"),
    "main untrained": ("{a: {route: adv}}", "[a]", "no term trains route main"),
    "unknown key": ("{main: {rout: a}}", "[main]", "did you mean 'route'"),
    "self": ("{self: {}}", "[self]", "cannot name a branch"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_structure_is_checked_without_torch(name: str) -> None:
    branches, of, said = BROKEN[name]
    with pytest.raises(UserError, match=said):
        pipelines.from_yaml(f"branches: {branches}\nterms: [{{loss: ntxent, of: {of}}}]")


def test_an_unused_head_is_refused_but_embed_may_rest() -> None:
    def read(head: str, reference: str) -> None:
        terms = [{"loss": "ntxent", "of": [reference]}]
        data = {"heads": {head: {"dim": "8"}}, "branches": {"main": {}}, "terms": terms}
        pipelines.from_dict(data)

    with pytest.raises(UserError, match="head 'proj' is used by no term"):
        read("proj", "main")
    read("proj", "main.proj")
    read("embed", "main")


def test_groups_join_only_what_shares_a_term() -> None:
    text = """
branches: {main: {}, a: {}, b: {}, c: {source: [a]}}
terms:
- {loss: ntxent, of: [main, a], join: each}
- {loss: ntxent, of: [a, b], join: cat}
- {loss: ntxent, of: ['main|stop', c], join: args}
"""
    pipeline = pipelines.from_yaml(text)
    assert pipelines.groups(pipeline) == [["main", "c"], ["a", "b"]]
    assert pipelines.order(pipeline).index("a") < pipelines.order(pipeline).index("c")


@given(st.integers(0, 30), st.integers(0, 10), st.integers(1, 10), st.floats(0, 5), st.floats(0, 5))
def test_ramps_are_straight_and_start_with_their_term(
    step: int, begin: int, length: int, first: float, last: float
) -> None:
    term = Term("x", ("main",), weight=Ramp(first, last, length), from_step=begin)
    expected = 0.0
    if step >= begin:
        expected = first + (last - first) * min(step - begin, length) / length
    assert term.weight_at(step) == pytest.approx(expected)


def test_a_key_that_stands_twice_is_refused() -> None:
    text = "branches: {main: {}}\nbranches: {main: {}}\nterms: [{loss: x, of: [main]}]"
    with pytest.raises(UserError, match="'branches' stands twice"):
        pipelines.from_yaml(text)
    with pytest.raises(UserError, match="'route' stands twice"):
        pipelines.from_yaml("branches: {main: {route: a, route: b}}")


def test_a_file_may_not_import_and_is_read_as_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(pipelines.build("mdprop").to_yaml())
    assert pipelines.load(file) == pipelines.resolve(pipeline=str(file))
    file.write_text("branches: {main: {augment: 'os.path:join'}}\nterms: [{loss: x, of: [main]}]")
    with pytest.raises(UserError, match="would import 'os.path:join': add --allow-import os"):
        pipelines.load(file)
    assert pipelines.load(file, allow=["os"]).branches["main"].augment == "os.path:join"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        pipelines.load(file)


def test_a_file_does_not_shadow_a_registered_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "st").write_text("x: y")
    monkeypatch.chdir(tmp_path)
    assert pipelines.resolve(pipeline="st") == pipelines.build("st")


def test_tags_in_yaml_run_nothing() -> None:
    with pytest.raises(UserError):
        pipelines.from_yaml("!!python/object/apply:os.system ['true']")


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["mtax", "mtax:targets=5"], ["mtax", "mtax2"]),
        (
            ["torchattacks:pgd", "torchattacks:pgd,steps=3"],
            ["torchattacks-pgd", "torchattacks-pgd2"],
        ),
        (
            ["torchattacks:PGD", "my-plugin/pgd", "some.module:Attack"],
            ["torchattacks-pgd", "pgd", "attack"],
        ),
        (["pgd:3", "pgd:.1"], ["pgd", "pgd2"]),
    ],
)
def test_specs_get_short_names_that_differ(specs: list[str], names: list[str]) -> None:
    assert unique_names(specs) == names


def test_a_ramp_may_move_in_stairs() -> None:
    ramp = Ramp(1, 0, 10, every=4)
    assert [ramp.at(step) for step in (0, 3, 4, 7, 8, 11, 12, 99)] == pytest.approx(
        [1, 1, 0.6, 0.6, 0.2, 0.2, 0, 0]
    )


@pytest.mark.parametrize(
    ("branch", "said"),
    [
        ("{strength: .5}", "strength is of an augment"),
        ("{augment: views, strength: 2}", "within 0 and 1"),
        ("{augment: views, strength: {from: 1, to: -1, steps: 5}}", "within 0 and 1"),
    ],
)
def test_a_strength_that_cannot_be_is_refused(branch: str, said: str) -> None:
    text = f"branches: {{main: {branch}}}\nterms: [{{loss: multisimilarity, of: [main]}}]"
    with pytest.raises(UserError, match=said):
        pipelines.from_yaml(text)


def test_an_inferior_positive_is_named_by_its_place() -> None:
    terms = {
        name: pipelines.build(f"{name}:loss='ainfonce:alpha=.3'").terms[0]
        for name in ("coreacl", "rocl", "advcl")
    }
    assert terms["coreacl"].loss == terms["rocl"].loss == "ainfonce:adversaries=[2],alpha=.3"
    assert terms["advcl"].loss == "ainfonce:adversaries=[0],alpha=.3"
    for term in terms.values():
        place = int(term.loss.partition("[")[2][0])
        assert term.of[place] == "adv.proj"


def test_an_adaptive_weight_is_told_both_features_through_route_main() -> None:
    for name, origin in (("coreacl", "clean"), ("rocl", "t1"), ("advcl", "org")):
        loss = "ainfonce:alpha=.2,alpha_warm=5,alpha_least=.5"
        made = pipelines.build(f"{name}:loss='{loss}'")
        assert made.terms[0].of[-2:] == (f"{origin}.features|stop", "adv_main.features|stop")
        assert made.branches["adv_main"].route == "main"
        assert made.branches["adv_main"].source == ("adv",)
