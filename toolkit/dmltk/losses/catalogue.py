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
"""Angular loss: the angle at the negative is bounded (Wang et al. 2017)."""

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
"""Circle loss: a similarity weighs more the farther it is from its optimum (Sun et al. 2020)."""

contrastive = pml("ContrastiveLoss")
"""Contrastive loss on pairs, linear in the distance where Hadsell et al. 2006 square it."""

cosface = pml("CosFaceLoss")
"""CosFace: softmax over proxies with a margin on the cosine (Wang et al. 2018)."""

dynamicsoftmargin = pml("DynamicSoftMarginLoss")
"""Dynamic soft margin: triplets weighted by the running spread of margins (Zhang et al. 2019)."""

fastap = pml("FastAPLoss")
"""FastAP: average precision through soft histograms of distances (Cakir et al. 2019)."""

generalizedliftedstructure = pml("GeneralizedLiftedStructureLoss")
"""Lifted structure over all positives and negatives of an anchor (Hermans et al. 2017)."""

histogram = pml("HistogramLoss")
"""Histogram loss: overlap of positive and negative similarities (Ustinova and Lempitsky 2016)."""

instance = pml("InstanceLoss")
"""Instance loss: cross-entropy over the similarities within the batch (Zheng et al. 2020)."""

intrapairvariance = pml("IntraPairVarianceLoss")
"""Intra-pair variance: pairs are held near the mean similarity of their sort (Yu and Tao 2019)."""

largemarginsoftmax = pml("LargeMarginSoftmaxLoss")
"""L-Softmax: softmax over proxies with a multiplied angle (Liu et al. 2016)."""

liftedstructure = pml("LiftedStructureLoss")
"""Lifted structure: a positive pair against the negatives of both ends (Oh Song et al. 2016)."""

manifold = pml("ManifoldLoss")
"""Manifold loss: random walks over pictures and proxies, no labels (Aziere and Todorovic 2019)."""

margin = pml("MarginLoss")
"""Margin loss: pairs against a boundary that may be learned (Wu et al. 2017)."""

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
"""NCA: the chance that a soft neighbour is of the same class (Goldberger et al. 2005)."""

normalizedsoftmax = pml("NormalizedSoftmaxLoss")
"""Normalized softmax: cross-entropy over unit-length proxies (Zhai and Wu 2019)."""

npairs = pml("NPairsLoss")
"""N-pairs: one positive against the positives of all other classes (Sohn 2016)."""

ntxent = pml("NTXentLoss")
"""NT-Xent (InfoNCE): a positive against its anchor's negatives (Sohn 2016; Chen et al. 2020)."""

p2sgrad = pml("P2SGradLoss")
"""P2SGrad: squared error between cosines to proxies and one-hot labels (Zhang et al. 2019)."""

pnp = pml("PNPLoss")
"""PNP: penalises the negatives ranked before a positive (Li et al. 2021)."""

proxyanchor = pml("ProxyAnchorLoss")
"""Proxy anchor: proxies are anchors to pictures of all classes (Kim et al. 2020)."""

proxynca = pml("ProxyNCALoss")
"""Proxy NCA: neighbourhood components with a proxy a class (Movshovitz-Attias et al. 2017)."""

rankedlist = pml("RankedListLoss")
"""Ranked list: pairs that break a boundary, negatives weighted by distance (Wang et al. 2019)."""

signaltonoiseratiocontrastive = pml("SignalToNoiseRatioContrastiveLoss")
"""Contrastive loss on the signal-to-noise distance (Yuan et al. 2019)."""

smoothap = pml("SmoothAPLoss")
"""Smooth-AP: average precision with sigmoids in place of ranks (Brown et al. 2020)."""

softtriple = pml("SoftTripleLoss")
"""SoftTriple: softmax over several centres a class (Qian et al. 2019)."""

sphereface = pml("SphereFaceLoss")
"""SphereFace: L-Softmax with unit-length proxies (Liu et al. 2017)."""

subcenterarcface = pml("SubCenterArcFaceLoss")
"""ArcFace with several centres a class, margin in degrees (Deng et al. 2020)."""

supcon = pml("SupConLoss")
"""Supervised contrastive: an anchor's positives against all others (Khosla et al. 2020)."""

thresholdconsistentmargin = pml("ThresholdConsistentMarginLoss")
"""Threshold-consistent margin: hard pairs against one threshold (Zhang et al. 2024)."""

tripletmargin = pml("TripletMarginLoss")
"""Triplet loss: a positive nearer than a negative by a margin (Weinberger and Saul 2009)."""

tupletmargin = pml("TupletMarginLoss")
"""Tuplet margin: a positive against negatives, its angle slackened (Yu and Tao 2019)."""

vicreg = pml("VICRegLoss")
"""VICReg: two views alike, coordinates varied and uncorrelated, no labels (Bardes et al. 2022)."""
