"""Figures of the shape of an embedding space: density, clusters, spectrum, collapse."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from dmltk.errors import UserError
from dmltk.evaluation.metrics import Metric, refuse_non_finite

WORST = 0.05
Engine = Literal["scikit-learn", "faiss"]


def nmi(
    seed: int = 0,
    repeats: Annotated[int, msgspec.Meta(ge=1)] = 1,
    engine: Engine = "scikit-learn",
) -> NMI:
    """NMI of k-means clusters against the labels, as many clusters as classes present.

    Engines differ by up to ten points on the same data and seeds by one or two, so both are
    attributes of the metric and belong beside the figure.

    Args:
        seed: seed of the first k-means run; the i-th further run takes seed + i.
        repeats: number of k-means runs whose NMI are averaged.
        engine: whose k-means; faiss is an extra.

    Source: 2 I(clusters, labels) / (H(clusters) + H(labels)), arithmetic mean.
    """
    if engine == "faiss":
        _faiss()
    return NMI(seed, repeats, engine)


def pi_ratio() -> Metric:
    """Density of an embedding space: distances inside classes over distances between them.

    Gives `pi_intra` (mean cosine distance between two pictures of a class, averaged over the
    classes with two pictures or more), `pi_inter` (between two class means) and `pi_ratio`,
    all three of the queries.

    Source: Roth et al. 2020, Revisiting Training Strategies, section 5.
    """
    return density


def class_density() -> Metric:
    """Density class by class, since the mean is prone to outliers.

    Gives `pi_median` and `pi_worst5`, of each class's distance inside over the distance between
    class means: the median, and the mean of the loosest 5 % of the classes (at least one).

    Source: MDProp (Singh et al.), on the mean of pi; Roth et al. 2020, section 5.
    """
    return classwise


def spectrum(
    collapse: Annotated[float, msgspec.Meta(ge=-1, le=1)] = 0.95,
) -> Spectrum:
    """How evenly an embedding space is used, and whether it has collapsed.

    Gives `rho` (KL(U‖S), S the singular values of the uncentred embeddings over their sum, U
    uniform; small is even), `anisotropy` (the share of the largest squared singular value),
    `mean_cosine` (over ordered pairs of the queries) and `collapsed` (1 where `mean_cosine`
    reaches `collapse`): the figures of a collapsed model say nothing about robustness.

    Args:
        collapse: mean cosine from which a model counts as collapsed.

    Source: Roth et al. 2020, Revisiting Training Strategies, section 5.
    """
    return Spectrum(collapse)


@dataclass(frozen=True)
class NMI:
    """NMI of k-means (k-means++, one start a run) against the labels."""

    seed: int
    repeats: int
    engine: Engine = "scikit-learn"

    def __call__(
        self,
        query: Tensor,
        gallery: Tensor,
        query_labels: Tensor,
        gallery_labels: Tensor,
        query_index: Tensor,
    ) -> dict[str, float | None]:
        """`{"nmi": …}` of the queries; None with fewer than two classes."""
        from sklearn.metrics import normalized_mutual_info_score

        refuse_non_finite(query, "query")
        points, labels = query.float().cpu().numpy(), query_labels.cpu().numpy()
        classes = len(np.unique(labels))
        if classes < 2:
            return {"nmi": None}
        cluster = kmeans if self.engine == "scikit-learn" else _faiss_kmeans
        values = [
            normalized_mutual_info_score(labels, cluster(points, classes, self.seed + i))
            for i in range(self.repeats)
        ]
        return {"nmi": float(np.mean(values))}


@dataclass(frozen=True)
class Spectrum:
    """See :func:`spectrum`."""

    collapse: float

    def __call__(
        self,
        query: Tensor,
        gallery: Tensor,
        query_labels: Tensor,
        gallery_labels: Tensor,
        query_index: Tensor,
    ) -> dict[str, float | None]:
        """`{"rho", "anisotropy", "mean_cosine", "collapsed"}` of the queries."""
        refuse_non_finite(query, "query")
        unit = normalize(query.cpu().double(), dim=1)
        values = torch.linalg.svdvals(unit)
        total, energy = values.sum().item(), values.square().sum().item()
        shares = values / total if total > 0 else values
        rho = -(len(shares) * shares).log().mean().item() if len(shares) else math.inf
        count = len(unit)
        summed = unit.sum(0).square().sum().item() - unit.square().sum().item()
        cosine = summed / (count * (count - 1)) if count > 1 else None
        return {
            "rho": rho if math.isfinite(rho) else None,
            "anisotropy": values[0].square().item() / energy if energy > 0 else None,
            "mean_cosine": cosine,
            "collapsed": None if cosine is None else float(cosine >= self.collapse),
        }


def kmeans(points: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The cluster of each of `points` (N, D), an integer in [0, clusters)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # fewer distinct points than clusters: the figure says it, a collapsed model has NMI 0
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(clusters, n_init=1, random_state=seed).fit_predict(points)


def _faiss_kmeans(points: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    faiss = _faiss()
    engine = faiss.Kmeans(
        points.shape[1],
        clusters,
        niter=20,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),
    )
    engine.train(np.ascontiguousarray(points))
    return engine.index.search(points, 1)[1][:, 0]


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError(
            "nmi:engine=faiss needs faiss: pip install 'dmltk[faiss]', or leave engine out"
        ) from None
    return faiss


def density(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """`{"pi_intra", "pi_inter", "pi_ratio"}` of the queries, without a list of pairs."""
    intra, inter = _distances(query, query_labels)
    pi_intra = intra.mean().item() if len(intra) else None
    ratio = None
    if pi_intra is not None and inter is not None and inter >= 1e-8:
        ratio = pi_intra / inter
    return {"pi_intra": pi_intra, "pi_inter": inter, "pi_ratio": ratio}


def classwise(
    query: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    query_index: Tensor,
) -> dict[str, float | None]:
    """`{"pi_median", "pi_worst5"}` of the queries; None where no distance is defined."""
    intra, inter = _distances(query, query_labels)
    if not len(intra) or inter is None or inter < 1e-8:
        return {"pi_median": None, "pi_worst5": None}
    ratios = (intra / inter).sort(descending=True).values
    worst = ratios[: max(1, round(WORST * len(ratios)))]
    return {"pi_median": ratios.quantile(0.5).item(), "pi_worst5": worst.mean().item()}


def _distances(query: Tensor, query_labels: Tensor) -> tuple[Tensor, float | None]:
    """Each class's mean cosine distance inside (classes of two or more), and that between means.

    With s the sum of n vectors, the sum of the products of all ordered pairs is |s|^2 less the
    sum of their squared lengths; so it takes N x D steps, in float64 as two large sums cancel.
    """
    refuse_non_finite(query, "query")
    unit = normalize(query.cpu().double(), dim=1)
    _, members, sizes = query_labels.cpu().unique(return_inverse=True, return_counts=True)
    sums = unit.new_zeros(len(sizes), unit.shape[1]).index_add_(0, members, unit)
    lengths = unit.new_zeros(len(sizes)).index_add_(0, members, unit.square().sum(1))
    several = sizes > 1
    intra = _pair_distance(sums[several], lengths[several], sizes[several])
    means = normalize(sums, dim=1)
    count = sizes.new_tensor([len(sizes)])
    inter = _pair_distance(means.sum(0, keepdim=True), means.square().sum()[None], count)
    return intra, inter.item() if len(sizes) > 1 else None


def _pair_distance(sums: Tensor, lengths: Tensor, sizes: Tensor) -> Tensor:
    """Mean cosine distance over ordered pairs of `sizes` vectors with these sums."""
    pairs = (sizes * (sizes - 1)).double()
    return 1 - (sums.square().sum(1) - lengths) / pairs
