"""The losses of pytorch-metric-learning by name, and the defaults that differ from its own.

Where nothing is given beside the class's name, the library's defaults hold. Losses around
another loss are in `wrappers`.
"""

from __future__ import annotations

from torch import Tensor, nn

from dmltk.losses.pml import pml


def inverse_root_uniform(proxies: Tensor) -> None:
    """Draw (D, C) proxies uniformly from +-1/sqrt(D), in place."""
    bound = proxies.shape[0] ** -0.5
    nn.init.uniform_(proxies, -bound, bound)


angular = pml("AngularLoss")
"""Angular loss: the angle at the negative is bounded (Wang et al. 2017).

Args:
    alpha: bound of the angle at the negative, in degrees.
"""

arcface = pml(
    "ArcFaceLoss",
    margin=28.65,
    scale=16,
    lr=5e-4,
    fixed={"weight_init_func": inverse_root_uniform},
)
"""ArcFace: softmax over proxies with a margin on the angle, in degrees (Deng et al. 2019).

Margin, scale, learning rate and the proxies' first values (uniform in +-1/sqrt(D)) are those of
Roth et al. 2020; the library's margin is 28.6 and its scale 64.

Args:
    margin: added to the angle between a picture and its class's proxy, in degrees.
    scale: factor of the cosines.
"""

circle = pml("CircleLoss")
"""Circle loss: a similarity weighs more the farther it is from its optimum (Sun et al. 2020).

Args:
    m: how far from 1 and from 0 similarities may be.
    gamma: factor of the similarities.
"""

contrastive = pml("ContrastiveLoss")
"""Contrastive loss on pairs, linear in the distance where Hadsell et al. 2006 square it.

Args:
    pos_margin: distance up to which a positive pair costs nothing; 1 where compared by a
        similarity.
    neg_margin: distance from which a negative pair costs nothing; 0 where compared by a
        similarity.
"""

cosface = pml("CosFaceLoss")
"""CosFace: softmax over proxies with a margin on the cosine (Wang et al. 2018).

Args:
    margin: taken from the cosine between a picture and its class's proxy.
"""

dynamicsoftmargin = pml("DynamicSoftMarginLoss")
"""Dynamic soft margin: triplets weighted by the running spread of margins (Zhang et al. 2019).

Args:
    min_val: least difference between a triplet's distances in the histogram.
    num_bins: bins of that histogram.
    momentum: weight of a batch in it.
"""

fastap = pml("FastAPLoss")
"""FastAP: average precision through soft histograms of distances (Cakir et al. 2019).

Args:
    num_bins: bins of the distances' histogram.
"""

generalizedliftedstructure = pml("GeneralizedLiftedStructureLoss")
"""Lifted structure over all positives and negatives of an anchor (Hermans et al. 2017).

Args:
    neg_margin: distance that negative pairs are asked to keep.
    pos_margin: distance that positive pairs may keep.
"""

histogram = pml("HistogramLoss")
"""Histogram loss: overlap of positive and negative similarities (Ustinova and Lempitsky 2016).

Args:
    n_bins: bins of the similarities from -1 to 1; none for 100, or as delta says.
    delta: width of a bin, in place of n_bins.
"""

instance = pml("InstanceLoss")
"""Instance loss: cross-entropy over the similarities within the batch (Zheng et al. 2020).

Args:
    gamma: factor of the cosines.
"""

intrapairvariance = pml("IntraPairVarianceLoss")
"""Intra-pair variance: pairs are held near the mean similarity of their sort (Yu and Tao 2019).

Args:
    pos_eps: share of their mean by which the similarity of positive pairs may be lower.
    neg_eps: share of their mean by which the similarity of negative pairs may be higher.
"""

largemarginsoftmax = pml("LargeMarginSoftmaxLoss")
"""L-Softmax: softmax over proxies with a multiplied angle (Liu et al. 2016).

Args:
    margin: whole factor of the angle between a picture and its class's proxy.
"""

liftedstructure = pml("LiftedStructureLoss")
"""Lifted structure: a positive pair against the negatives of both ends (Oh Song et al. 2016).

Args:
    neg_margin: distance that negative pairs are asked to keep.
    pos_margin: distance that positive pairs may keep.
"""

manifold = pml("ManifoldLoss")
"""Manifold loss: random walks over pictures and proxies, no labels (Aziere and Todorovic 2019).

Args:
    K: number of proxies; a batch holds at least as many pictures.
    lambdaC: weight of the part that compares a picture's and a proxy's surroundings.
    alpha: share of its similarity that a node passes on, between 0 and 1.
    margin: by which the own proxy is asked to be nearer than any other.
"""

margin = pml("MarginLoss")
"""Margin loss: pairs against a boundary that may be learned (Wu et al. 2017).

Args:
    margin: how far on their side of the boundary pairs are asked to be.
    nu: weight of a learned boundary itself.
    beta: the boundary between positive and negative distances.
    learn_beta: whether the boundary is trained.
    num_classes: number of boundaries trained, one a class.
"""

multisimilarity = pml(
    "MultiSimilarityLoss",
    alpha=2,
    beta=40,
    base=0.5,
    miner="multisimilarity(epsilon=0.1)",
    reducer="avgnonzero",
)
"""Multi-similarity loss with its miner, averaged over the anchors kept (Wang et al. 2019).

The defaults are those of Roth et al. 2020; the library's are beta 50, no miner, and a mean over
all anchors.

Args:
    alpha: sharpness over positive pairs.
    beta: sharpness over negative pairs.
    base: similarity at which a pair weighs one half.
"""

nca = pml("NCALoss")
"""NCA: the chance that a soft neighbour is of the same class (Goldberger et al. 2005).

Args:
    softmax_scale: factor of the distances.
"""

normalizedsoftmax = pml("NormalizedSoftmaxLoss")
"""Normalized softmax: cross-entropy over unit-length proxies (Zhai and Wu 2019)."""

npairs = pml("NPairsLoss")
"""N-pairs: one positive against the positives of all other classes (Sohn 2016)."""

ntxent = pml("NTXentLoss")
"""NT-Xent (InfoNCE): a positive against its anchor's negatives (Sohn 2016; Chen et al. 2020)."""

p2sgrad = pml("P2SGradLoss")
"""P2SGrad: squared error between cosines to proxies and one-hot labels (Zhang et al. 2019)."""

pnp = pml("PNPLoss")
"""PNP: penalises the negatives ranked before a positive (Li et al. 2021).

Args:
    b: steepness of variant Ib.
    alpha: exponent of variant Dq.
    anneal: temperature of the sigmoid in place of a rank's step.
    variant: Ds, Dq, Iu, Ib or O: how the negatives before a positive become its loss.
"""

proxyanchor = pml("ProxyAnchorLoss")
"""Proxy anchor: proxies are anchors to pictures of all classes (Kim et al. 2020).

Args:
    margin: similarity to the own proxy asked for; its negative to the others.
    alpha: sharpness over the pictures of a proxy.
"""

proxynca = pml("ProxyNCALoss")
"""Proxy NCA: neighbourhood components with a proxy a class (Movshovitz-Attias et al. 2017).

Args:
    softmax_scale: factor of the distances.
"""

rankedlist = pml("RankedListLoss", margin=0.4, Tn=10)
"""Ranked list: pairs that break a boundary, negatives weighted by distance (Wang et al. 2019).

The library has no default for margin and Tn.

Args:
    margin: distance between the boundaries of positive and of negative pairs.
    Tn: how much more the nearer negative pairs weigh.
    imbalance: weight of the negative pairs' part; the rest is that of the positive ones.
    alpha: distance that negative pairs are asked to keep; none for 1 + margin/2.
    Tp: how much more the farther positive pairs weigh.
"""

signaltonoiseratiocontrastive = pml("SignalToNoiseRatioContrastiveLoss")
"""Contrastive loss on the signal-to-noise distance (Yuan et al. 2019).

Args:
    pos_margin: distance up to which a positive pair costs nothing.
    neg_margin: distance from which a negative pair costs nothing.
"""

smoothap = pml("SmoothAPLoss")
"""Smooth-AP: average precision with sigmoids in place of ranks (Brown et al. 2020).

Args:
    temperature: of the sigmoid in place of a rank's step.
"""

softtriple = pml("SoftTripleLoss")
"""SoftTriple: softmax over several centres a class (Qian et al. 2019).

Args:
    centers_per_class: proxies a class.
    la: factor of the similarities to classes.
    gamma: temperature of the choice among a class's proxies.
    margin: taken from the similarity to the own class.
"""

sphereface = pml("SphereFaceLoss")
"""SphereFace: L-Softmax with unit-length proxies (Liu et al. 2017).

Args:
    margin: whole factor of the angle between a picture and its class's proxy.
"""

subcenterarcface = pml("SubCenterArcFaceLoss")
"""ArcFace with several centres a class, margin in degrees (Deng et al. 2020).

Args:
    margin: added to the angle between a picture and its class's nearest proxy, in degrees.
    sub_centers: proxies a class.
"""

supcon = pml("SupConLoss")
"""Supervised contrastive: an anchor's positives against all others (Khosla et al. 2020)."""

thresholdconsistentmargin = pml("ThresholdConsistentMarginLoss")
"""Threshold-consistent margin: hard pairs against one threshold (Zhang et al. 2024).

Args:
    lambda_plus: weight of the positive pairs' part.
    lambda_minus: weight of the negative pairs' part.
    margin_plus: similarity up to which a positive pair counts.
    margin_minus: similarity from which a negative pair counts.
"""

tripletmargin = pml("TripletMarginLoss")
"""Triplet loss: a positive nearer than a negative by a margin (Weinberger and Saul 2009).

Args:
    swap: the negative counts from the positive where that is nearer than the anchor.
    smooth_loss: softplus in place of the hinge.
"""

tupletmargin = pml("TupletMarginLoss")
"""Tuplet margin: a positive against negatives, its angle slackened (Yu and Tao 2019).

Args:
    margin: taken from the angle of a positive pair, in degrees.
"""

vicreg = pml("VICRegLoss")
"""VICReg: two views alike, coordinates varied and uncorrelated, no labels (Bardes et al. 2022).

Args:
    invariance_lambda: weight of the difference between the views.
    variance_mu: weight of the coordinates' spread.
    covariance_v: weight of the coordinates' covariance.
    eps: added to a variance before its root.
"""
