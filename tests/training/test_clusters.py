"""Pseudo-labels: clusters by name, from a file or from the model's start."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dmltk import registry, seeds
from dmltk.data.split import load
from dmltk.errors import UserError
from dmltk.pipelines import from_yaml
from dmltk.training.clusters import clusters
from safetensors.torch import save_file
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

ASKING = """
branches: {main: {}}
terms: [{loss: "softmax:num_classes=3", of: [main], labels: clusters3}]
"""
SPLIT = registry.build("datasets", "blobs:classes=8,per_class=6,size=16").train


def routed() -> torch.nn.Module:
    embedder = registry.build("models", "smallconv:width=4,seed=1")
    return registry.build("norms", "shared").apply(embedder, ["main"]).train()


def test_the_start_of_the_model_is_clustered_where_no_file_is_given() -> None:
    model = routed()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found = clusters(from_yaml(ASKING), SPLIT, model, features="", batch=5, seed=7)["clusters3"]
    assert model.training
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    images = load(SPLIT, range(len(SPLIT)))[0]
    with torch.no_grad():
        points = model.eval()(images, route="main").double().numpy()
    start = seeds.derive(7, "clusters3") % 2**32
    expected = KMeans(3, n_init=1, random_state=start).fit_predict(points)
    assert adjusted_rand_score(found, expected) == pytest.approx(1)


def test_features_of_the_user_are_clustered_and_a_class_is_a_cluster(tmp_path: Path) -> None:
    middle = torch.eye(3)[torch.arange(len(SPLIT)) % 3] * 9
    save_file({"features": middle}, tmp_path / "f.safetensors")
    found = clusters(
        from_yaml(ASKING),
        SPLIT,
        None,
        features=str(tmp_path / "f.safetensors"),
        batch=5,
        seed=0,
    )["clusters3"]
    assert len(found) == len(SPLIT)
    assert adjusted_rand_score(found, torch.arange(len(SPLIT)) % 3) == 1


@pytest.mark.parametrize(
    "held", [{"other": torch.zeros(24, 2)}, {"features": torch.zeros(23, 2)}, {}]
)
def test_features_that_do_not_fit_are_refused(
    held: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    file = tmp_path / "f.safetensors"
    save_file(held, file) if held else file.write_bytes(b"torn")
    with pytest.raises(UserError, match=r"features=.*f\.safetensors"):
        clusters(from_yaml(ASKING), SPLIT, None, features=str(file), batch=5, seed=0)


def test_too_many_clusters_and_features_for_nothing_are_refused() -> None:
    many = from_yaml(ASKING.replace("clusters3", "clusters13"))
    with pytest.raises(UserError, match="13 clusters of 24 pictures"):
        clusters(many, SPLIT, routed(), features="", batch=5, seed=0)
    plain = from_yaml("branches: {main: {}}\nterms: [{loss: contrastive, of: [main]}]")
    assert clusters(plain, SPLIT, None, features="", batch=5, seed=0) == {}
    with pytest.raises(UserError, match="there is none"):
        clusters(plain, SPLIT, None, features="f", batch=5, seed=0)
