"""What every pipeline must do."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

from dmltk import pipelines
from dmltk.data.split import load
from dmltk.folder import RunFolder
from dmltk.pipelines import Pipeline
from dmltk.testing.part import Part
from dmltk.training.config import Config
from dmltk.training.run import prepare, run

DATASET = "blobs:classes=8,per_class=6,size=16"
MODEL = "smallconv:width=4,dim=8"
LATE = 10**6
"""A step at which every term is at work and every ramp at its end."""


def use(part: Part) -> dict[str, Tensor]:
    """What two steps leave of a tiny model."""
    with tempfile.TemporaryDirectory() as folder:
        ready, place = prepare(_config(part)), RunFolder(Path(folder) / "run")
        place.begin()
        ready.trainer(place, lambda *_: None)
        return dict(ready.model.state_dict())


def check_it_is_a_pipeline(part: Part) -> None:
    """The factory gives a :class:`Pipeline` whose structure holds."""
    built = part.build()
    assert isinstance(built, Pipeline), f"the factory gives a {type(built).__name__}, no Pipeline"
    assert "main" in built.routes, "no branch goes through route main, the one that is deployed"


def check_it_survives_yaml(part: Part) -> None:
    """Written as YAML and read again it is the same."""
    built = part.build()
    assert pipelines.from_yaml(built.to_yaml()) == built, "written as YAML it is another pipeline"


def check_two_steps_train_the_model(part: Part) -> None:
    """Two steps on tiny data: weights move and stay finite."""
    before = {
        key: value.clone() for key, value in prepare(_config(part)).model.state_dict().items()
    }
    after = use(part)
    assert all(torch.isfinite(value).all() for value in after.values() if value.is_floating_point())
    moved = [key for key, value in after.items() if not torch.equal(value, before[key])]
    assert moved, "two steps leave every weight as it was"


def check_every_parameter_gets_a_gradient(part: Part) -> None:
    """No head, set of normalisers or weight is left out once all terms are at work."""
    ready = prepare(_config(part))
    batch = ready.trainer.batch(load(ready.dataset.train, range(12)), 0, 0)
    step, model = ready.trainer.step, ready.model.train()
    views = step.pictures(batch, 0, LATE)
    step.gradients(views, LATE)
    silent = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not silent, f"no term reaches {', '.join(silent[:5])}: leave that part out, or use it"


def check_a_run_judges_it(part: Part) -> None:
    """A whole run trains it, judges it and leaves a plain model."""
    with tempfile.TemporaryDirectory() as folder:
        found = run(_config(part), RunFolder(Path(folder) / "run"), lambda *_: None, lambda _: None)
        assert (Path(folder) / "run" / "model.safetensors").exists()
    assert found["evaluations"][0]["name"] == "clean"


def _config(part: Part) -> Config:
    return Config(
        pipeline=part.build(),
        dataset=DATASET,
        model=MODEL,
        steps=2,
        batch=8,
        per_class=2,
        protocols=("clean",),
        metrics=("recall",),
    )
