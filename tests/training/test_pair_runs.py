"""Runs on pairs: drawn or listed, broken off and gone on with; what is refused before work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from dmltk import data
from dmltk.errors import UserError
from dmltk.training.assemble import assemble
from dmltk.training.config import from_dict
from dmltk.training.run import prepare
from torchvision.utils import save_image

from .test_run import flags, go, interrupted, same

DRAWN = {
    "dataset": "shapes:per_class=8,test_per_class=4",
    "model": "tanhconv",
    "pipeline": "siamese:pairs=adjacent",
    "sampler": "pairs",
    "optimizer": "sgd",
    "batch": "6",
    "eval_attack": (),
    "protocol": ("clean",),
    "metric": ("recall:ks=[1]",),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A list of ten pairs of drawn shapes, as a spec."""
    root = tmp_path_factory.mktemp("photos")
    train = data.build("shapes:per_class=4").train
    for image, _, row in train:
        save_image(image / 255, root / f"{row}.png")
    pairs = [(0, 1), (1, 2), (4, 5), (8, 9), (10, 9), (0, 4), (5, 8), (2, 11), (3, 7), (6, 10)]
    lines = [f"{a}.png,{b}.png,{int(train.labels[a] == train.labels[b])}" for a, b in pairs]
    (root / "list.csv").write_text("\n".join(["a,b,same", *lines]))
    return f"pairs:'{root}/list.csv',test=shapes(test_per_class=4)"


@pytest.mark.parametrize("listed", [False, True])
def test_a_run_on_pairs_goes_on_to_the_same_bits(listed: bool, photos: str, tmp_path: Path) -> None:
    given = {**DRAWN, "dataset": photos, "size": "16"} if listed else DRAWN
    go(tmp_path / "whole", **given)
    steps = [json.loads(t)["step"] for t in (tmp_path / "whole" / "log.jsonl").open()]
    assert steps == [4, 8]
    cut = interrupted(tmp_path / "cut", **given)
    go(cut, "resume", **given)
    assert same(tmp_path / "whole", cut)
    go(tmp_path / "other", **given, seed="1")
    assert not same(tmp_path / "whole", tmp_path / "other")


def test_the_first_loss_is_that_of_the_listed_pairs(photos: str) -> None:
    """With plain steps of rate 0 an epoch's pairs are those of the list under the first weights."""
    given = {**DRAWN, "dataset": photos, "size": "16", "batch": "20"}
    ready = prepare(assemble(flags(**given))[0])
    (rows,) = list(ready.trainer.batches)
    train = ready.dataset.train
    assert sorted(map(tuple, torch.tensor(rows).view(-1, 2).tolist())) == sorted(
        map(tuple, train.pairs.tolist())
    )
    with torch.no_grad():
        images = torch.stack([train[row][0] for row in range(len(train))]).float() / 255
        z = ready.model.eval()(images).double()
        costs = []
        for a, b in train.pairs.tolist():
            d = float((z[a] - z[b]).norm())
            like = train.labels[a] == train.labels[b]
            costs.append(d * d / 2 if like else max(0, 1 - d) ** 2 / 2)
        loss = ready.trainer.parts.losses[0](z[rows], labels=train.labels[rows])
    assert float(loss) == pytest.approx(sum(costs) / len(costs))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sampler": None}, "--sampler pairs --pipeline siamese:pairs=adjacent"),
        ({"pipeline": "siamese"}, "--sampler pairs --pipeline siamese:pairs=adjacent"),
        ({"pipeline": "st", "loss": "contrastive"}, "--pipeline siamese:pairs=adjacent"),
        ({"batch": "7"}, "batch must be even"),
        ({"per_class": "3"}, "per_class=3 is for sampler=classes"),
        ({"with_replacement": True}, "with_replacement=true is for sampler=classes"),
        ({"patience": "2"}, "val=.2 within its test=…"),
    ],
)
def test_what_pairs_do_not_allow_is_refused(given, words: str, photos: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        go(tmp_path / "r", **{**DRAWN, "dataset": photos, "size": "16", **given})
    assert words in str(caught.value)
    assert not (tmp_path / "r").exists()


def test_an_objective_looks_at_listed_pairs_alone(photos: str, tmp_path: Path) -> None:
    """What an attack climbs is held to the same rule as what is trained."""
    from dmltk.pipelines import from_yaml
    from msgspec import to_builtins

    pipeline = from_yaml("""
        norms: shared
        heads: {embed: {dim: 8, unit: false}}
        branches:
          main: {}
          adv: {attack: "pgd:steps=1,select=last", objective: [{loss: contrastive, of: [self]}]}
        terms: [{loss: "hadsell:pairs=adjacent", of: [main, adv], join: each}]
    """)
    plain = {"pipeline": to_builtins(pipeline), "dataset": photos, "size": 16, "batch": 6}
    config = from_dict({**plain, "sampler": "pairs", "model": "tanhconv"})
    with pytest.raises(UserError, match="lists pairs and knows no names"):
        prepare(config)


def test_adjacent_rows_of_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs --sampler pairs: .* pulls alone collapse"):
        go(tmp_path / "r", **{**DRAWN, "sampler": None})
    assert not (tmp_path / "r").exists()


def test_drawn_pairs_go_with_losses_of_all_pairs() -> None:
    prepare(assemble(flags(**{**DRAWN, "pipeline": "siamese"}))[0])
