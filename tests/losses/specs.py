"""Each loss as a spec that needs no more than a run offers."""

from __future__ import annotations

from dmltk import registry

OWN = {"ainfonce", "hadsell", "softmax"}
"""Losses that are not of the library."""

ALSO = {
    "crossbatchmemory": "crossbatchmemory:contrastive",
    "selfsupervised": "selfsupervised:ntxent",
    "manifold": "manifold:K=4",
}
NAMES = [name for name in registry.available("losses") if name != "multiplelosses"]
SPECS = {name: ALSO.get(name, name) for name in NAMES}
