"""What each class of pytorch-metric-learning takes and gives: the one table of it.

Everything else here asks this table: which arguments a loss has, which parts go together, how
much memory a batch will take, what `dmltk show loss` prints. The tests derive every entry from
the installed library, and fail with the name of a class that is new there or gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

Takes = Literal["labels", "pictures", "views"]
Choice = Literal["any", "similarity", "distance", "same", "fixed"]
Reduced = Literal["pictures", "pairs", "triplets", "proxies", "coordinates", "whole"]
Mined = Literal["pairs", "triplets", "weights", "nothing"]
Largest = Literal[
    "square",
    "triplets",
    "joined pairs",
    "positives x pictures",
    "positives x negatives",
    "cube",
]

WRAPPERS = ("crossbatchmemory", "selfsupervised")
SIZES = ("num_classes", "embedding_size")


@dataclass(frozen=True)
class Loss:
    """What a loss takes and gives.

    Args:
        distance: compares embeddings by default; empty where none can be named.
        choice: which distances may stand in its place: `any`, a `similarity` (large is near), a
            `distance` (small is near), the `same` with other powers, or none: `fixed`.
        reducer: makes one number of its losses by default; empty where they are one already.
        reduces: what its losses are of; `whole` where they are one number.
        divisor: whether it says what its losses are to be divided by.
        mined: what a miner's choice becomes; `weights` are those of the pictures.
        takes: embeddings and `labels`, `pictures` alone, or two `views` of each.
        references: whether it compares the batch with other embeddings where there are some.
        inside: the losses that it may stand in.
        needs: arguments without a default.
        owns: its parameter.
        centers: the argument that says how many proxies a class has.
        largest: its largest tensor where nothing is mined.
    """

    distance: str
    choice: Choice
    reducer: str
    reduces: Reduced
    divisor: bool = False
    mined: Mined = "nothing"
    takes: Takes = "labels"
    references: bool = False
    inside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    owns: str = ""
    centers: str = ""
    largest: Largest = "square"


@dataclass(frozen=True)
class Miner:
    """What a miner chooses, by which distances; whether it draws, and lists all triplets."""

    chooses: Literal["pairs", "triplets"]
    distance: str
    choice: Choice
    draws: bool = False
    largest: Largest = "square"


@dataclass(frozen=True)
class Reducer:
    """Of which losses a reducer makes one number.

    Args:
        reduces: what those losses are of.
        divisor: whether they must say what they are to be divided by.
        outside: the losses around another whose inner loss cannot have it.
        why: the reason.
    """

    reduces: tuple[Reduced, ...]
    divisor: bool = False
    outside: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Regularizer:
    """What a regularizer compares and gives; `centers` where it is of a class's proxies."""

    distance: str
    choice: Choice
    reducer: str = "mean"
    reduces: Reduced = "proxies"
    divisor: bool = False
    centers: bool = False


@dataclass(frozen=True)
class Distance:
    """Whether a distance is a similarity: large where embeddings are near."""

    similarity: bool


@dataclass(frozen=True)
class Refused:
    """A class that cannot be named in a spec."""

    reason: str


_pairs = partial(Loss, mined="pairs", references=True, inside=WRAPPERS)
"""A loss over pairs that compares with other embeddings too."""


def _proxies(distance: str, choice: Choice, owns: str, centers: str = "") -> Loss:
    """A loss of each picture against its class's proxies; a miner weighs the pictures."""
    return Loss(
        distance,
        choice,
        "mean",
        "pictures",
        mined="weights",
        needs=SIZES,
        owns=owns,
        centers=centers,
    )


def short_name(cls: str) -> str:
    """The name of a library class: without its last word, in lower case."""
    return re.sub(r"(Loss|Miner|Reducer|Distance|Regularizer)$", "", cls).lower()


LOSSES: dict[str, Loss | Refused] = {
    "AngularLoss": _pairs("lp", "fixed", "mean", "pairs", largest="positives x pictures"),
    "ArcFaceLoss": _proxies("cosinesimilarity", "same", "W"),
    "CircleLoss": _pairs("cosinesimilarity", "same", "avgnonzero", "pictures"),
    "ContrastiveLoss": _pairs("lp", "any", "avgnonzero", "pairs"),
    "CosFaceLoss": _proxies("cosinesimilarity", "same", "W"),
    "DynamicSoftMarginLoss": Loss(
        "lp", "same", "", "whole", mined="triplets", references=True, largest="triplets"
    ),
    "FastAPLoss": Loss("lp", "same", "mean", "pictures", mined="weights"),
    "GeneralizedLiftedStructureLoss": _pairs("lp", "any", "mean", "pictures"),
    "HistogramLoss": Loss(
        "cosinesimilarity", "same", "", "whole", mined="triplets", largest="triplets"
    ),
    "InstanceLoss": Loss("cosinesimilarity", "same", "mean", "pictures"),
    "IntraPairVarianceLoss": _pairs("cosinesimilarity", "any", "mean", "pairs"),
    "LargeMarginSoftmaxLoss": _proxies("cosinesimilarity", "same", "W"),
    "LiftedStructureLoss": _pairs("lp", "any", "mean", "pairs", largest="positives x negatives"),
    "ManifoldLoss": Loss(
        "cosinesimilarity",
        "similarity",
        "",
        "whole",
        takes="pictures",
        needs=("embedding_size",),
        owns="proxies",
    ),
    "MarginLoss": Loss(
        "lp",
        "any",
        "divisor",
        "triplets",
        divisor=True,
        mined="triplets",
        references=True,
        inside=WRAPPERS[:1],
        owns="beta",
        largest="triplets",
    ),
    "MultiSimilarityLoss": _pairs("cosinesimilarity", "any", "mean", "pictures"),
    "NCALoss": _pairs("lp", "any", "mean", "pictures", mined="weights"),
    "NormalizedSoftmaxLoss": _proxies("dotproductsimilarity", "any", "W"),
    "NPairsLoss": Loss("dotproductsimilarity", "any", "mean", "pictures", mined="pairs"),
    "NTXentLoss": _pairs(
        "cosinesimilarity", "any", "mean", "pairs", largest="positives x negatives"
    ),
    "P2SGradLoss": Loss("", "fixed", "", "whole", needs=SIZES, owns="weight"),
    "PNPLoss": Loss("cosinesimilarity", "same", "", "whole", largest="cube"),
    "ProxyAnchorLoss": Loss(
        "cosinesimilarity",
        "any",
        "divisor",
        "proxies",
        divisor=True,
        mined="weights",
        needs=SIZES,
        owns="proxies",
    ),
    "ProxyNCALoss": _proxies("lp", "any", "proxies"),
    "RankedListLoss": Loss("lp", "distance", "mean", "pictures", needs=("margin", "Tn")),
    "SignalToNoiseRatioContrastiveLoss": _pairs("snr", "same", "avgnonzero", "pairs"),
    "SmoothAPLoss": Loss(
        "cosinesimilarity", "same", "mean", "pictures", mined="weights", largest="cube"
    ),
    "SoftTripleLoss": _proxies("cosinesimilarity", "similarity", "fc", "centers_per_class"),
    "SphereFaceLoss": _proxies("cosinesimilarity", "same", "W"),
    "SubCenterArcFaceLoss": _proxies("cosinesimilarity", "same", "W", "sub_centers"),
    "SupConLoss": _pairs("cosinesimilarity", "any", "avgnonzero", "pictures"),
    "ThresholdConsistentMarginLoss": Loss("cosinesimilarity", "fixed", "", "whole", mined="pairs"),
    "TripletMarginLoss": _pairs(
        "lp", "any", "avgnonzero", "triplets", mined="triplets", largest="triplets"
    ),
    "TupletMarginLoss": _pairs(
        "cosinesimilarity", "same", "mean", "pairs", largest="positives x negatives"
    ),
    "VICRegLoss": Loss("", "fixed", "mean", "coordinates", takes="views", references=True),
    "MultipleLosses": Refused("give the pipeline one term a loss, each with its weight"),
    "CrossBatchMemory": Loss("", "fixed", "", "whole", needs=("loss", "embedding_size")),
    "SelfSupervisedLoss": Loss("", "fixed", "", "whole", takes="views", needs=("loss",)),
}
"""By class name; a loss around another owns what that one does."""

MINERS: dict[str, Miner | Refused] = {
    "AngularMiner": Miner("triplets", "lp", "fixed", largest="triplets"),
    "BatchEasyHardMiner": Miner("pairs", "lp", "any"),
    "BatchHardMiner": Miner("triplets", "lp", "any"),
    "DistanceWeightedMiner": Miner("triplets", "lp", "fixed", draws=True),
    "EmbeddingsAlreadyPackagedAsTriplets": Refused(
        "no sampler here lays a batch out as anchor, positive, negative"
    ),
    "HDCMiner": Miner("pairs", "lp", "any"),
    "MultiSimilarityMiner": Miner("pairs", "cosinesimilarity", "any"),
    "PairMarginMiner": Miner("pairs", "lp", "any"),
    "TripletMarginMiner": Miner("triplets", "lp", "any", largest="triplets"),
    "UniformHistogramMiner": Miner("pairs", "lp", "any", draws=True),
}

_ALL: tuple[Reduced, ...] = ("pictures", "pairs", "triplets", "proxies", "coordinates")
REDUCERS: dict[str, Reducer | Refused] = {
    "AvgNonZeroReducer": Reducer(_ALL),
    "ClassWeightedReducer": Reducer(
        ("pictures", "pairs", "triplets"),
        outside=("selfsupervised",),
        why="each picture is a class of its own there",
    ),
    "DivisorReducer": Reducer(_ALL, divisor=True),
    "DoNothingReducer": Refused("it gives no number"),
    "MeanReducer": Reducer(_ALL),
    "MultipleReducers": Refused("its parts are named after a loss's inner sums"),
    "PerAnchorReducer": Reducer(
        ("pictures", "pairs", "proxies", "coordinates"),
        outside=("crossbatchmemory",),
        why="it knows pairs within a batch only",
    ),
    "SumReducer": Reducer(_ALL),
    "ThresholdReducer": Reducer(_ALL),
}

DISTANCES: dict[str, Distance | Refused] = {
    "BatchedDistance": Refused("it gives no matrix"),
    "CosineSimilarity": Distance(similarity=True),
    "DotProductSimilarity": Distance(similarity=True),
    "LpDistance": Distance(similarity=False),
    "SNRDistance": Distance(similarity=False),
}

REGULARIZERS: dict[str, Regularizer | Refused] = {
    "CenterInvariantRegularizer": Regularizer("lp", "fixed"),
    "LpRegularizer": Regularizer("", "fixed"),
    "RegularFaceRegularizer": Regularizer("cosinesimilarity", "similarity"),
    "SparseCentersRegularizer": Regularizer(
        "cosinesimilarity", "same", "divisor", divisor=True, centers=True
    ),
    "ZeroMeanRegularizer": Regularizer("", "fixed"),
}
