"""Every entry of the table, derived anew from the installed library by building and calling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dmltk.losses import requirements
from dmltk.losses.fits import TABLES
from dmltk.losses.requirements import (
    DISTANCES,
    LOSSES,
    MINERS,
    REDUCERS,
    REGULARIZERS,
    Distance,
    Loss,
    Miner,
    Reducer,
    Refused,
    Regularizer,
    short_name,
)
from pytorch_metric_learning import distances, losses, reducers
from pytorch_metric_learning.losses import tcm_loss
from pytorch_metric_learning.utils import loss_and_miner_utils
from torch import Tensor
from torch.nn.functional import normalize

from .library import (
    EVEN,
    LABELS,
    MODULES,
    PROXIES,
    SIZE,
    Sizes,
    call,
    concrete,
    make,
    near,
    needed,
    unit,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence"),
    pytest.mark.filterwarnings("ignore:__array_wrap__"),
]
USED = {name: facts for name, facts in LOSSES.items() if isinstance(facts, Loss)}
WRAPPERS = {"CrossBatchMemory", "SelfSupervisedLoss"}
SINGLE = {name: facts for name, facts in USED.items() if name not in WRAPPERS}
VARIANTS: list[Any] = [
    distances.LpDistance(),
    distances.LpDistance(power=2),
    distances.LpDistance(normalize_embeddings=False),
    distances.CosineSimilarity(),
    distances.CosineSimilarity(power=2),
    distances.DotProductSimilarity(),
    distances.DotProductSimilarity(normalize_embeddings=False),
    distances.SNRDistance(),
    distances.SNRDistance(power=2),
]
# where the library takes a distance by which the loss would mean the opposite
STRICTER = {"HistogramLoss": "same", "ManifoldLoss": "similarity", "RankedListLoss": "distance"}


def loss(name: str, **more: Any) -> Any:
    return make("loss", name, USED[name].needs, **more)


def labels(name: str) -> Tensor:
    return EVEN if name == "SmoothAPLoss" else LABELS  # the library's needs classes of one size


@pytest.mark.parametrize("kind", list(MODULES))
def test_a_class_new_in_the_library_or_gone_is_named(kind: str) -> None:
    there, known = concrete(MODULES[kind]), set(TABLES[kind])
    assert not there - known, f"new in pytorch-metric-learning: {sorted(there - known)}"
    assert not known - there, f"gone from pytorch-metric-learning: {sorted(known - there)}"


def test_what_is_refused_has_a_reason() -> None:
    refused = [f for table in TABLES.values() for f in table.values() if isinstance(f, Refused)]
    assert len(refused) == 5 and all(facts.reason for facts in refused)


@pytest.mark.parametrize("name", USED)
def test_a_loss_needs_its_arguments_and_no_other(name: str) -> None:
    given = needed(name, USED[name].needs)
    getattr(losses, name)(**given)
    for key in given:
        with pytest.raises((TypeError, KeyError)):
            getattr(losses, name)(**{k: v for k, v in given.items() if k != key})


@pytest.mark.parametrize("name", SINGLE)
def test_a_loss_owns_its_parameter_and_no_other(name: str) -> None:
    learned = {"learn_beta": True} if name == "MarginLoss" else {}
    found = [key for key, _ in loss(name, **learned).named_parameters()]
    assert found == [USED[name].owns] * bool(USED[name].owns)


@pytest.mark.parametrize("name", USED)
def test_a_loss_takes_labels_or_views_or_pictures_alone(name: str) -> None:
    def takes(*given: Any, **named: Any) -> bool:
        try:
            return bool(loss(name)(*given, **named).isfinite())
        except Exception:
            return False

    z = near()
    views = "views" if takes(z, ref_emb=unit(len(z), 5)) else "pictures"
    assert USED[name].takes == ("labels" if takes(z, labels(name)) else views)


@pytest.mark.parametrize("name", USED)
def test_a_loss_looks_at_references_or_not(name: str) -> None:
    z, y = near(), None if USED[name].takes == "views" else labels(name)

    def compared(turn: int) -> float:
        return float(loss(name)(z, labels=y, ref_emb=near().roll(turn, 1), ref_labels=y))

    try:
        looks = compared(1) != compared(2)
    except (TypeError, ValueError):
        looks = False
    assert USED[name].references == looks


@pytest.mark.parametrize("name", USED)
def test_a_loss_stands_in_the_wrappers_that_the_library_lets_it(name: str) -> None:
    wrappers = {
        "crossbatchmemory": losses.CrossBatchMemory,
        "selfsupervised": losses.SelfSupervisedLoss,
    }
    held = [key for key, cls in wrappers.items() if name in cls.supported_losses()]
    assert list(USED[name].inside) == held


@pytest.mark.parametrize("name", [name for name in SINGLE if SINGLE[name].takes == "labels"])
def test_a_miners_choice_becomes_pairs_triplets_or_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[str] = []

    def watch(module: Any, kind: str) -> None:
        convert = getattr(module, f"convert_to_{kind}")

        def watched(chosen: Any, *arguments: Any, **named: Any) -> Any:
            became.append(kind)
            return convert(chosen, *arguments, **named)

        monkeypatch.setattr(module, f"convert_to_{kind}", watched)

    for kind in ("pairs", "triplets", "weights"):
        watch(loss_and_miner_utils, kind)
    watch(tcm_loss, "pairs")
    y = labels(name)
    chosen = loss_and_miner_utils.get_all_pairs_indices(y)
    try:
        loss(name)(near(), y, chosen)
    except ValueError:
        became = ["nothing"]
    assert became[:1] == [USED[name].mined]


@pytest.mark.parametrize("name", SINGLE)
def test_a_loss_reduces_what_it_says(name: str) -> None:
    made = loss(name, reducer=reducers.DoNothingReducer())
    parts = call(made, USED[name].takes, near(), labels(name)).values()
    kinds = {part["reduction_type"] for part in parts} - {"already_reduced"}
    lengths = {len(part["indices"]) for part in parts if part["reduction_type"] == "element"}
    if kinds == {"element"}:
        found = {PROXIES: "proxies", SIZE: "coordinates"}.get(min(lengths, default=0), "pictures")
    else:
        found = {frozenset(): "whole", frozenset({"triplet"}): "triplets"}.get(
            frozenset(kinds), "pairs"
        )
    assert USED[name].reduces == found
    assert USED[name].divisor == any("divisor" in part for part in parts)


@pytest.mark.parametrize("name", SINGLE)
def test_a_loss_has_its_default_distance_and_reducer(name: str) -> None:
    made, facts = loss(name), USED[name]
    inner = [made.reducer, *getattr(made.reducer, "reducers", {}).values()]
    found = {short_name(type(reducer).__name__) for reducer in inner} - {"multiplereducers"}
    assert not facts.reducer or found == {facts.reducer}
    assert not facts.distance or short_name(type(made.distance).__name__) == facts.distance


def choice(values: list[tuple[Any, Any]]) -> str:
    """What a user of distances lets one choose: by those it takes and what they change."""
    takes = {type(distance).__name__ for distance, _ in values}
    if all(found == values[0][1] for _, found in values):
        return "fixed"
    if len(takes) == 1:
        return "same"
    similar = {distance.is_inverted for distance, _ in values}
    return {(True,): "similarity", (False,): "distance"}.get(tuple(similar), "any")


@pytest.mark.parametrize("name", SINGLE)
def test_a_loss_compares_by_the_distances_that_change_it(name: str) -> None:
    values = []
    for distance in VARIANTS:
        try:
            made = loss(name, distance=distance)
        except (AssertionError, ValueError):
            continue
        try:
            found = call(made, USED[name].takes, near(), labels(name)).item()
        except RuntimeError:  # beyond the histogram of similarities
            found = None
        values.append((distance, found))
    found = choice(values) if values else "fixed"
    assert USED[name].choice == STRICTER.get(name, found)
    assert name not in STRICTER or found == "any"


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("HistogramLoss", distances.LpDistance()),
        ("RankedListLoss", distances.CosineSimilarity()),
    ],
)
def test_a_distance_refused_here_alone_drives_classes_together(name: str, distance: Any) -> None:
    def gap(z: Tensor) -> Tensor:
        similar = normalize(z, dim=1) @ normalize(z, dim=1).T
        same = LABELS[:, None] == LABELS
        return similar[same].mean() - similar[~same].mean()

    def widens(**more: Any) -> bool:
        z = near().requires_grad_()
        (slope,) = torch.autograd.grad(loss(name, **more)(z, LABELS), z)
        return bool(gap(z - 1e-3 * slope) > gap(z))

    assert widens() and not widens(distance=distance)


def kinds_of(sizes: dict[str, int], found: int, size: int) -> list[str]:
    """The kinds of tensor that have so many numbers, or a column more, or several a cell."""
    return [
        kind
        for kind, numbers in sizes.items()
        if any(1 <= found / (numbers * parts) <= 1.01 for parts in {1, 2, 3, size})
    ]


def counted(y: Tensor) -> dict[str, int]:
    """The numbers in each kind of tensor, by loops."""
    rows = range(len(y))
    same = [sum(bool(y[i] == y[j]) for j in rows if j != i) for i in rows]
    other = [sum(bool(y[i] != y[j]) for j in rows) for i in rows]
    positives, negatives = sum(same), sum(other)
    return {
        "triplets": sum(s * o for s, o in zip(same, other, strict=True)),
        "positives x negatives": positives * negatives,
        "positives x pictures": positives * len(y),
        "cube": len(y) ** 3,
    }


def largest(made: Any, *given: Any) -> str:
    """The kind of the largest tensor that a call makes."""
    with Sizes() as sizes:
        made(*given)
    y = given[1] if len(given) > 1 else LABELS
    if sizes.largest <= 3 * len(y) ** 2:
        return "square"
    (found,) = kinds_of(counted(y), sizes.largest, given[0].shape[1])
    return found


@pytest.mark.parametrize("name", [name for name in SINGLE if SINGLE[name].takes == "labels"])
def test_a_loss_makes_no_larger_tensor_than_it_says(name: str) -> None:
    size = "descriptors_dim" if name == "P2SGradLoss" else "embedding_size"
    more = {"num_classes": 4, size: 2} if "num_classes" in USED[name].needs else {}
    assert largest(loss(name, **more), near(2), labels(name)) == USED[name].largest


@pytest.mark.parametrize("name", [n for n, f in MINERS.items() if isinstance(f, Miner)])
def test_a_miner_chooses_compares_and_draws_as_it_says(name: str) -> None:
    facts = MINERS[name]
    assert isinstance(facts, Miner)
    made = make("miner", name)
    chosen = made(near(), LABELS)
    assert facts.chooses == {3: "triplets", 4: "pairs"}[len(chosen)]
    assert short_name(type(made.distance).__name__) == facts.distance
    torch.manual_seed(1)
    again = make("miner", name)(near(), LABELS)
    torch.manual_seed(2)
    other = getattr(MODULES["miner"], name)()(near(), LABELS)
    differs = any(map(lambda a, b: a.shape != b.shape or bool((a != b).any()), again, other))
    assert facts.draws == differs
    assert largest(made, near(2), LABELS) == facts.largest
    values = []
    for distance in VARIANTS:
        try:
            made = make("miner", name, distance=distance)
        except AssertionError:
            continue
        values.append((distance, [part.tolist() for part in made(near(), LABELS)]))
    assert facts.choice == choice(values)


KINDS = {
    "pictures": "MultiSimilarityLoss",
    "pairs": "ContrastiveLoss",
    "triplets": "TripletMarginLoss",
    "proxies": "ProxyAnchorLoss",
    "coordinates": "VICRegLoss",
}


@pytest.mark.parametrize("name", [n for n, f in REDUCERS.items() if isinstance(f, Reducer)])
def test_a_reducer_makes_one_number_of_what_it_says(name: str) -> None:
    facts = REDUCERS[name]
    assert isinstance(facts, Reducer)
    z, y = near()[:12], torch.arange(6).repeat(2)
    worked = []
    for kind, of in KINDS.items():
        of = "MarginLoss" if facts.divisor and kind == "triplets" else of
        try:
            call(loss(of, reducer=make("reducer", name)), USED[of].takes, z, y)
            worked.append(kind)
        except (IndexError, TypeError, NotImplementedError, KeyError):
            pass
    if facts.divisor:
        assert worked == ["triplets", "proxies"]
    else:
        assert list(facts.reduces) == worked


@pytest.mark.parametrize("name", [n for n, f in REDUCERS.items() if isinstance(f, Reducer)])
def test_a_reducer_stays_outside_where_it_would_die(name: str) -> None:
    facts = REDUCERS[name]
    assert isinstance(facts, Reducer)
    if facts.divisor:
        return
    more = {"weights": torch.ones(6)} if name == "ClassWeightedReducer" else {}
    inner = losses.ContrastiveLoss(reducer=make("reducer", name, **more))
    memory, views = losses.CrossBatchMemory(inner, SIZE, 36), losses.SelfSupervisedLoss(inner)
    y = torch.arange(6).repeat(2)

    def dies(*calls: Any) -> bool:
        try:
            for one in calls:
                one()
        except IndexError:
            return True
        return False

    batches = [lambda seed=seed: memory(unit(12, seed), y) for seed in range(3)]
    assert dies(*batches) == ("crossbatchmemory" in facts.outside)
    assert dies(lambda: views(unit(12), unit(12, 2))) == ("selfsupervised" in facts.outside)
    assert bool(facts.why) == bool(facts.outside)


@pytest.mark.parametrize("name", [n for n, f in DISTANCES.items() if isinstance(f, Distance)])
def test_a_similarity_is_large_where_embeddings_are_near(name: str) -> None:
    facts, z = DISTANCES[name], unit(1)
    assert isinstance(facts, Distance)
    near, far = make("distance", name)(z, z + 0.01 * unit(1, 3)), make("distance", name)(z, -z)
    assert facts.similarity == bool(near > far)


@pytest.mark.parametrize("name", [n for n, f in REGULARIZERS.items() if isinstance(f, Regularizer)])
def test_a_regularizer_is_as_it_says(name: str) -> None:
    facts, weights = REGULARIZERS[name], unit(20) * torch.arange(1, 21)[:, None]
    assert isinstance(facts, Regularizer)
    made = make("regularizer", name)
    assert not facts.distance or short_name(type(made.distance).__name__) == facts.distance
    assert short_name(type(made.reducer).__name__) == facts.reducer
    (part,) = make("regularizer", name, reducer=reducers.DoNothingReducer())(weights).values()
    assert facts.divisor == ("divisor" in part) and part["reduction_type"] == "element"
    values = []
    for distance in VARIANTS:
        try:
            made = make("regularizer", name, distance=distance)
        except AssertionError:
            continue
        values.append((distance, made(weights).item()))
    assert facts.choice == choice(values)
    try:
        make("regularizer", name)(weights[:7])
        several = False
    except IndexError:
        several = True
    assert facts.centers == several


def test_losses_with_several_proxies_a_class_say_how_many() -> None:
    for name, facts in SINGLE.items():
        if facts.owns and facts.reduces == "pictures":
            (owned,) = loss(name).parameters()
            several = max(owned.shape) // PROXIES
            assert bool(facts.centers) == (several > 1)
            if facts.centers:
                (more,) = loss(name, **{facts.centers: several + 1}).parameters()
                assert max(more.shape) == PROXIES * (several + 1)


def test_nothing_stands_in_the_table_that_is_not_read() -> None:
    from pathlib import Path

    folder = Path(requirements.__file__).parent
    read = "".join(p.read_text() for p in folder.glob("*.py") if p.name != "requirements.py")
    for kind in (Loss, Miner, Reducer, Regularizer, Distance, Refused):
        for field in kind.__dataclass_fields__:
            assert f".{field}" in read, f"{kind.__name__}.{field}"
