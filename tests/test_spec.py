"""The grammar: one text, one meaning, and back."""

from __future__ import annotations

import pytest
from dmltk.errors import UserError
from dmltk.spec import Spec, imports, is_import, parse
from hypothesis import given
from hypothesis import strategies as st

names = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
keys = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)


def specs(values: st.SearchStrategy) -> st.SearchStrategy[Spec]:
    return st.builds(
        Spec,
        names,
        st.lists(values, max_size=1).map(tuple),
        st.dictionaries(keys, values, max_size=3),
    )


values = st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | specs(inner), max_leaves=8)


@given(specs(values))
def test_what_is_written_is_read_back(spec: Spec) -> None:
    assert parse(str(spec)) == spec


@given(names, st.dictionaries(keys, values, max_size=3))
def test_import_paths_are_read_back(attribute: str, kwargs: dict) -> None:
    spec = Spec(f"my.package:{attribute.replace('-', '_')}", (), kwargs)
    assert parse(str(spec)) == spec
    assert is_import(spec.name)


@given(st.text(max_size=20))
def test_any_text_is_a_spec_or_a_user_error(text: str) -> None:
    try:
        parsed = parse(text)
    except UserError as error:
        assert "\n" not in str(error) or "\n" in text
    else:
        assert parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stax", Spec("stax")),
        ("timm:resnet50.a1_in1k,dim=128", Spec("timm", ("resnet50.a1_in1k",), {"dim": "128"})),
        ("folder:'a b/c,d'", Spec("folder", ("a b/c,d",))),
        ("mtax:targets=5,eps=8/255", Spec("mtax", (), {"targets": "5", "eps": "8/255"})),
        (
            "multisimilarity:miner=multisimilarity(epsilon=.1)",
            Spec("multisimilarity", (), {"miner": Spec("multisimilarity", (), {"epsilon": ".1"})}),
        ),
        ("mypkg.attacks:Mine,steps=3", Spec("mypkg.attacks:Mine", (), {"steps": "3"})),
        ("acme-attacks/pgd", Spec("acme-attacks/pgd")),
        ("mdprop:mtax=[3,5]", Spec("mdprop", (), {"mtax": ["3", "5"]})),
        ("mdprop:mtax=[]", Spec("mdprop", (), {"mtax": []})),
    ],
)
def test_documented_forms(text: str, expected: Spec) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":", "a:", "a:b,c", "a:x=1,x=2", "a(b", "a:x=[1", "a:x='b", "a.b:", "a(b)c"]
)
def test_what_is_malformed_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(UserError, match=r"expected at character \d+"):
        parse(text)


def test_imports_are_found_wherever_they_hide() -> None:
    assert list(imports("pgd:goal=my.goals:Mine(power=2)")) == ["my.goals:Mine"]
    assert list(imports("my.attacks:Mine,steps=2")) == ["my.attacks:Mine"]
    assert list(imports(["stax", "a:x=[b.c:D(e=1)]"])) == ["b.c:D"]
    assert list(imports("timm:resnet50.a1_in1k,weights=./my.safetensors")) == []
