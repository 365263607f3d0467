"""Every built-in part of every kind goes through the checks that a plug-in goes through."""

from __future__ import annotations

from pathlib import Path

import pytest
from dmltk import pipelines, registry
from dmltk.folder import RunFolder
from dmltk.testing import Check, Part, check, parametrize_with_checks, samples
from dmltk.training.config import Config
from dmltk.training.run import run
from torchvision.transforms.functional import to_pil_image

from ..data import official

SPECS = {
    "attack:apgd": "attack:apgd:steps=6",
    "attack:square": "attack:square:queries=60",
    "attack:nes": "attack:nes:queries=60,population=10",
    "attack:rotation": "attack:rotation:angles=3,steps=2",
    "attack:colour": "attack:colour:10",
    "attack:stadv": "attack:stadv:steps=5",
    "solver:apgd": "solver:apgd:steps=6",
    "solver:stadv": "solver:stadv:steps=5",
    "solver:square": "solver:square:queries=60",
    "solver:nes": "solver:nes:queries=60,population=10",
    "solver:rotation": "solver:rotation:angles=3,steps=2",
    "augment:chain": "augment:chain:[flip,crop]",
    "pipeline:advcl": "pipeline:advcl:clusters=[2]",
    "loss:crossbatchmemory": "loss:crossbatchmemory:contrastive",
    "loss:selfsupervised": "loss:selfsupervised:ntxent",
    "model:timm": "model:timm:resnet10t,size=32",
    "model:torchvision": "model:torchvision:shufflenet_v2_x0_5,size=32",
    "dataset:glyphs": "dataset:glyphs:classes=8,per_class=6",
    "dataset:blobs": "dataset:blobs:classes=8,per_class=6",
    "dataset:shapes": "dataset:shapes:per_class=6,test_per_class=6",
}
"""Parts that need an argument, or are quicker with one."""

ROWS = "it compares a row with its neighbours in the batch, so the order is part of it"
DRAWS = "it draws from torch's global random state, which every training step seeds"
KNOWN = {
    "goal:terms:contrastive": {
        "double_precision_is_kept": "the losses of metric learning are computed in float32"
    },
    "augment:highpass": {
        "pictures_stay_pictures": "as published, they have mean zero and are not clipped"
    },
    "loss:instance": {"the_order_of_pictures_does_not_matter": ROWS},
    "loss:npairs": {"the_order_of_pictures_does_not_matter": ROWS},
    "loss:manifold:K=4": dict.fromkeys(
        (
            "the_process_is_left_alone",
            "the_same_twice",
            "half_precision_is_computed_in_full",
            "the_order_of_pictures_does_not_matter",
        ),
        DRAWS,
    ),
}
"""What some are known to fail, with the reason."""

ELSEWHERE = {
    "dataset:cifar10": "needs its files: below",
    "dataset:cifar100": "needs its files: below",
    "dataset:csv": "needs a file: below",
    "dataset:folder": "needs a folder: below",
    "dataset:emoji": "needs its pictures: below",
    "dataset:fashion-mnist": "needs its files: below",
    "dataset:stl10": "needs its files: below",
    "dataset:pairs": "needs a file: below",
    "model:run": "needs a run: below",
    "loss:multiplelosses": "cannot be built: several terms of a pipeline are that sum",
}


def built_in() -> list[str]:
    return [
        f"{registry.singular(kind)}:{entry.name}"
        for kind in registry.KINDS
        for entry in registry.entries(kind)
        if entry.distribution == registry.HOME
    ]


OWN = [SPECS.get(part, part) for part in built_in() if part not in ELSEWHERE]
CLEAN = [part for part in OWN if not any(part == k or k.startswith(f"{part}:") for k in KNOWN)]


@parametrize_with_checks(CLEAN)
def test_built_in_parts_conform(part: Part, check: Check) -> None:
    check(part)


@pytest.mark.parametrize("part", KNOWN)
def test_parts_with_known_failures_fail_these_alone(part: str) -> None:
    kind, _, spec = part.partition(":")
    results = check(kind, spec, expected_failed_checks=KNOWN[part])
    assert [one for one in results if one.status == "failed"] == []
    assert {one.check for one in results if one.status == "expected"} == set(KNOWN[part])


def test_every_built_in_is_checked_somewhere() -> None:
    checked = {*CLEAN, *KNOWN}
    for part in built_in():
        named = SPECS.get(part, part)
        assert part in ELSEWHERE or any(
            one == named or one.startswith(f"{part}:") for one in checked
        )


def conforms(kind: str, spec: str) -> None:
    failed = [one for one in check(kind, spec) if one.status == "failed"]
    assert not failed, "\n".join(f"{one.check}: {one.message}\n{one.trace}" for one in failed)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of four classes of three pictures, and a list of them."""
    lines = ["path,label,split"]
    for row, (image, label, _) in enumerate(samples.split(12)):
        path = tmp_path / "pictures" / f"c{label}" / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        to_pil_image(image).save(path)
        side = "train" if label < 2 else ("query" if row % 8 < 4 else "gallery")
        lines.append(f"pictures/c{label}/{row}.png,c{label},{side}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    return tmp_path


def test_pictures_in_files_conform(pictures: Path) -> None:
    conforms("dataset", f"folder:{pictures / 'pictures'}")
    conforms("dataset", f"csv:{pictures / 'list.csv'}")
    pairs = "a,b,same\npictures/c0/0.png,pictures/c0/4.png,1\npictures/c0/0.png,pictures/c1/1.png,0"
    (pictures / "pairs.csv").write_text(pairs)
    conforms("dataset", f"pairs:{pictures / 'pairs.csv'},test=folder({pictures / 'pictures'})")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10", "fashion-mnist"])
def test_published_files_conform(name: str, tmp_path: Path) -> None:
    getattr(official, name.split("-")[0])(tmp_path)
    conforms("dataset", f"{name}:{tmp_path},val=1/3,size=24")


def test_the_model_of_a_run_conforms(tmp_path: Path) -> None:
    config = Config(
        pipeline=pipelines.build("st"),
        dataset="blobs:classes=8,per_class=6,size=16",
        model="smallconv:width=4,dim=8",
        steps=1,
        batch=8,
        protocols=("clean",),
        metrics=("recall",),
    )
    run(config, RunFolder(tmp_path / "run"), lambda *_: None, lambda _: None)
    conforms("model", f"run:{tmp_path / 'run'}")
