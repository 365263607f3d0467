"""Every miner, reducer, distance and regularizer with every loss: it works, or a sentence says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from dmltk import losses, registry
from dmltk.errors import UserError
from dmltk.losses import fits
from dmltk.losses.pml import LibraryLoss, classes, part
from dmltk.losses.requirements import LOSSES, Loss
from pytorch_metric_learning import distances, reducers

from .library import unit

pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
CONTEXT = {"num_classes": 6, "embedding_size": 8, "seed": 0}
SINGLE = [
    name
    for name in registry.available("losses")
    if isinstance(registry.factory("losses", name), LibraryLoss)
]
ALSO = {"manifold": "K=2"}
PARTS = {
    "classweighted": "classweighted(weights=[1,2,3,1,2,3])",
    "threshold": "threshold(low=.01)",
    "sparsecenters": "sparsecenters(num_classes=6,centers_per_class={centers})",
}
ARGUMENTS = {
    "miner": "miner",
    "reducer": "reducer",
    "distance": "distance",
    "embedding_regularizer": "regularizer",
    "weight_regularizer": "regularizer",
}


def named(kind: str, name: str, centers: int = 1) -> str:
    return PARTS.get(name, name).format(centers=centers)


def products(name: str) -> Iterator[tuple[str, str, str]]:
    """Each argument of a loss with each part: argument, part, spec of the loss."""
    signature = registry.factory("losses", name).signature_for({}).parameters
    centers = signature["centers_per_class"].default if name == "softtriple" else 3
    for argument, kind in ARGUMENTS.items():
        for found in classes(kind) if argument in signature else ():
            given = [ALSO.get(name, ""), f"{argument}={named(kind, found, centers)}"]
            yield argument, found, f"{name}:{','.join(filter(None, given))}"


@pytest.mark.parametrize("name", SINGLE)
def test_what_goes_together_trains_and_the_rest_is_refused_when_built(name: str) -> None:
    y = torch.arange(6).repeat(3)
    for argument, found, spec in products(name):
        fitting = fits.names("miner") if argument == "miner" else None
        facts = registry.factory("losses", name).requires
        fitting = fitting or fits.allowed(facts)[argument]
        if found not in fitting:
            with pytest.raises(UserError):
                losses.build(spec, context=CONTEXT)
            continue
        loss = losses.build(spec, context=CONTEXT)
        z = unit(18).requires_grad_()
        value = loss(*(z, unit(18, 2))[: 2 if loss.takes == "views" else 1], labels=y)
        value.backward()
        assert value.isfinite() and z.grad is not None and z.grad.isfinite().all(), spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("angular:distance=snr", "unknown argument 'distance'"),
        (
            "circle:distance=lp",
            "loss 'circle' cannot take distance 'lp': it takes cosinesimilarity",
        ),
        ("softtriple:distance=snr", "it takes cosinesimilarity, dotproductsimilarity"),
        ("rankedlist:distance=cosinesimilarity", "it takes lp, snr"),
        (
            "tripletmargin:reducer=peranchor",
            "'peranchor', its losses are of triplets: it takes avg",
        ),
        ("ntxent:reducer=divisor", "'divisor', as it names no divisor: it takes mean, avgnonzero"),
        ("pnp:reducer=mean", "unknown argument 'reducer'"),
        ("proxyanchor:reducer=classweighted(weights=[1])", "its losses are of proxies"),
        ("vicreg:reducer=classweighted(weights=[1])", "its losses are of coordinates"),
        ("ntxent:reducer=peranchor(reducer=divisor)", "reducer 'peranchor' cannot take reducer"),
        ("ntxent:reducer=donothing", "reducer 'donothing' cannot be used here: it gives no number"),
        ("ntxent:reducer=multiples", "unknown reducer 'multiples'"),
        ("ntxent:reducer=multiplereducers", "named after a loss's inner sums"),
        ("ntxent:distance=batched", "it gives no matrix"),
        ("ntxent:miner=embeddingsalreadypackagedastriplets", "no sampler here lays a batch out"),
        ("ntxent:miner=angular(distance=snr)", "unknown argument 'distance'"),
        (
            "ntxent:regularizer=sparsecenters(num_classes=6,centers_per_class=2)",
            "embedding_regularizer 'sparsecenters', which is of several proxies a class",
        ),
        (
            "arcface:weight_regularizer=sparsecenters(num_classes=6,centers_per_class=2)",
            "weight_regularizer 'sparsecenters', which is of several proxies a class",
        ),
        (
            "softtriple:weight_regularizer=sparsecenters(num_classes=10,centers_per_class=6)",
            "num_classes=6 and centers_per_class=10",
        ),
        ("arcface:weight_regularizer=regularface(distance=lp)", "it takes cosinesimilarity, dot"),
        ("softtriple:regularizer=lp(reducer=divisor)", "it names no divisor"),
        ("rankedlist:Tn=90", "take lower temperatures"),
        ("crossbatchmemory:arcface", "loss 'crossbatchmemory' cannot hold this loss: it takes ang"),
        ("crossbatchmemory:contrastive(reducer=peranchor)", "it knows pairs within a batch only"),
        ("selfsupervised:margin", "cannot hold this loss"),
        (
            "selfsupervised:ntxent(reducer=classweighted(weights=[1,1]))",
            "each picture is a class of its own there",
        ),
        ("multiplelosses", "one term a loss"),
    ],
)
def test_what_does_not_go_together_is_told_with_what_would(spec: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        losses.build(spec, context=CONTEXT)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_modules_from_python_are_held_to_the_same() -> None:
    with pytest.raises(UserError, match="it takes cosinesimilarity"):
        losses.build("circle", distance=distances.LpDistance())
    with pytest.raises(UserError, match="it gives no number"):
        losses.build("ntxent", reducer=reducers.DoNothingReducer())

    class Own(reducers.MeanReducer):
        """No class of the library."""

    assert isinstance(losses.build("ntxent", reducer=Own()).inner.reducer, Own)


@pytest.mark.parametrize("name", ["angular", "liftedstructure", "tupletmargin", "circle", "ntxent"])
def test_class_weights_are_those_of_each_anchor(name: str) -> None:
    """The library multiplies a column of losses with a row of weights, all with all."""
    z, y = unit(9), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    weights = [1.0, 2.0, 5.0]
    loss = losses.build(f"{name}:reducer=classweighted(weights={weights})".replace(" ", ""))
    plain = losses.build(name)
    plain.inner.set_reducer(reducers.DoNothingReducer())
    ((key, parts),) = plain.inner(z, y).items()
    of = parts["indices"][0] if parts["reduction_type"] == "pos_pair" else parts["indices"]
    expected = sum(
        weights[int(y[i])] * float(v) for i, v in zip(of, parts["losses"].flatten(), strict=True)
    ) / len(of)
    torch.testing.assert_close(loss(z, labels=y), torch.tensor(expected), msg=key)


def test_every_pair_of_parts_builds_with_its_own_parts() -> None:
    for kind, name in itertools.product(("miner", "regularizer"), fits.names("distance")):
        for owner in fits.names(kind):
            facts = fits.facts_of(classes(kind)[owner])
            inner = named(kind, owner, 2)
            spec = inner[:-1] + "," if inner.endswith(")") else inner + "("
            spec += f"distance={name})"
            if name in fits.distances(facts):
                assert part(kind, spec) is not None
            else:
                with pytest.raises(UserError):
                    part(kind, spec)


def test_show_rows_name_only_what_can_be_built() -> None:
    for name, facts in LOSSES.items():
        if isinstance(facts, Loss):
            assert all(fits.rows(facts).values()), name
