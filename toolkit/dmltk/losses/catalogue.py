"""The losses of pytorch-metric-learning by name, and the defaults that differ from its own.

Where nothing is given beside the class's name, the library's defaults hold. Losses around
another loss are in `wrappers`, those with proxies in `proxies`.
"""

from __future__ import annotations

from dmltk.losses.pml import pml

angular = pml("AngularLoss")
"""Angular loss: the angle at the negative is bounded (Wang et al. 2017).

Args:
    alpha: bound of the angle at the negative, in degrees.

Source: Wang et al. 2017, Deep metric learning with angular loss.
"""

circle = pml("CircleLoss")
"""Circle loss: a similarity weighs more the farther it is from its optimum (Sun et al. 2020).

Args:
    m: how far from 1 and from 0 similarities may be.
    gamma: factor of the similarities.

Source: Sun et al. 2020, Circle loss: a unified perspective of pair similarity optimization.
"""

contrastive = pml("ContrastiveLoss")
"""Contrastive loss on pairs, linear in the distance where Hadsell et al. 2006 square it.

Args:
    pos_margin: distance up to which a positive pair costs nothing; 1 where compared by a
        similarity.
    neg_margin: distance from which a negative pair costs nothing; 0 where compared by a
        similarity.

Source: Hadsell, Chopra and LeCun 2006, Dimensionality reduction by learning an invariant mapping.
"""

dynamicsoftmargin = pml("DynamicSoftMarginLoss")
"""Dynamic soft margin: triplets weighted by the running spread of margins (Zhang et al. 2019).

Args:
    min_val: least difference between a triplet's distances in the histogram.
    num_bins: bins of that histogram.
    momentum: weight of a batch in it.

Source: Zhang et al. 2019, Learning local descriptors with a CDF-based dynamic soft margin.
"""

fastap = pml("FastAPLoss")
"""FastAP: average precision through soft histograms of distances (Cakir et al. 2019).

Args:
    num_bins: bins of the distances' histogram.

Source: Cakir et al. 2019, Deep metric learning to rank.
"""

generalizedliftedstructure = pml("GeneralizedLiftedStructureLoss")
"""Lifted structure over all positives and negatives of an anchor (Hermans et al. 2017).

Args:
    neg_margin: distance that negative pairs are asked to keep.
    pos_margin: distance that positive pairs may keep.

Source: Hermans, Beyer and Leibe 2017, In defense of the triplet loss for person re-identification.
"""

histogram = pml("HistogramLoss")
"""Histogram loss: overlap of positive and negative similarities (Ustinova and Lempitsky 2016).

Args:
    n_bins: bins of the similarities from -1 to 1; none for 100, or as delta says.
    delta: width of a bin, in place of n_bins.

Source: Ustinova and Lempitsky 2016, Learning deep embeddings with histogram loss.
"""

instance = pml("InstanceLoss")
"""Instance loss: cross-entropy over the similarities within the batch (Zheng et al. 2020).

Args:
    gamma: factor of the cosines.

Source: Zheng et al. 2020, Dual-path convolutional image-text embeddings with instance loss.
"""

intrapairvariance = pml("IntraPairVarianceLoss")
"""Intra-pair variance: pairs are held near the mean similarity of their sort (Yu and Tao 2019).

Args:
    pos_eps: share of their mean by which the similarity of positive pairs may be lower.
    neg_eps: share of their mean by which the similarity of negative pairs may be higher.

Source: Yu and Tao 2019, Deep metric learning with tuplet margin loss.
"""

liftedstructure = pml("LiftedStructureLoss")
"""Lifted structure: a positive pair against the negatives of both ends (Oh Song et al. 2016).

Args:
    neg_margin: distance that negative pairs are asked to keep.
    pos_margin: distance that positive pairs may keep.

Source: Song et al. 2016, Deep metric learning via lifted structured feature embedding.
"""

margin = pml("MarginLoss")
"""Margin loss: pairs against a boundary that may be learned (Wu et al. 2017).

Args:
    margin: how far on their side of the boundary pairs are asked to be.
    nu: weight of a learned boundary itself.
    beta: the boundary between positive and negative distances.
    learn_beta: whether the boundary is trained.
    num_classes: number of boundaries trained, one a class.

Source: Wu et al. 2017, Sampling matters in deep embedding learning.
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

Source: Wang et al. 2019, Multi-similarity loss with general pair weighting for deep metric
learning.
"""

nca = pml("NCALoss")
"""NCA: the chance that a soft neighbour is of the same class (Goldberger et al. 2005).

Args:
    softmax_scale: factor of the distances.

Source: Goldberger et al. 2004, Neighbourhood components analysis.
"""

npairs = pml("NPairsLoss")
"""N-pairs: one positive against the positives of all other classes (Sohn 2016).

Source: Sohn 2016, Improved deep metric learning with multi-class N-pair loss objective.
"""

ntxent = pml("NTXentLoss")
"""NT-Xent (InfoNCE): a positive against its anchor's negatives (Sohn 2016; Chen et al. 2020).

Source: Sohn 2016; Chen et al. 2020, A simple framework for contrastive learning of visual
representations.
"""

pnp = pml("PNPLoss")
"""PNP: penalises the negatives ranked before a positive (Li et al. 2021).

Args:
    b: steepness of variant Ib.
    alpha: exponent of variant Dq.
    anneal: temperature of the sigmoid in place of a rank's step.
    variant: Ds, Dq, Iu, Ib or O: how the negatives before a positive become its loss.

Source: Li et al. 2022, Rethinking the optimization of average precision: only penalizing negative
instances before positive ones is enough.
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

Source: Wang et al. 2019, Ranked list loss for deep metric learning.
"""

signaltonoiseratiocontrastive = pml("SignalToNoiseRatioContrastiveLoss")
"""Contrastive loss on the signal-to-noise distance (Yuan et al. 2019).

Args:
    pos_margin: distance up to which a positive pair costs nothing.
    neg_margin: distance from which a negative pair costs nothing.

Source: Yuan et al. 2019, Signal-to-noise ratio: a robust distance metric for deep metric learning.
"""

smoothap = pml("SmoothAPLoss")
"""Smooth-AP: average precision with sigmoids in place of ranks (Brown et al. 2020).

Args:
    temperature: of the sigmoid in place of a rank's step.

Source: Brown et al. 2020, Smooth-AP: smoothing the path towards large-scale image retrieval.
"""

supcon = pml("SupConLoss")
"""Supervised contrastive: an anchor's positives against all others (Khosla et al. 2020).

Source: Khosla et al. 2020, Supervised contrastive learning.
"""

thresholdconsistentmargin = pml("ThresholdConsistentMarginLoss")
"""Threshold-consistent margin: hard pairs against one threshold (Zhang et al. 2024).

Args:
    lambda_plus: weight of the positive pairs' part.
    lambda_minus: weight of the negative pairs' part.
    margin_plus: similarity up to which a positive pair counts.
    margin_minus: similarity from which a negative pair counts.

Source: Zhang et al. 2024, Threshold-consistent margin loss for open-world deep metric learning.
"""

tripletmargin = pml("TripletMarginLoss")
"""Triplet loss: a positive nearer than a negative by a margin (Weinberger and Saul 2009).

Args:
    swap: the negative counts from the positive where that is nearer than the anchor.
    smooth_loss: softplus in place of the hinge.

Source: Schroff, Kalenichenko and Philbin 2015, FaceNet: a unified embedding for face recognition
and clustering.
"""

tupletmargin = pml("TupletMarginLoss")
"""Tuplet margin: a positive against negatives, its angle slackened (Yu and Tao 2019).

Args:
    margin: taken from the angle of a positive pair, in degrees.

Source: Yu and Tao 2019, Deep metric learning with tuplet margin loss.
"""

vicreg = pml("VICRegLoss")
"""VICReg: two views alike, coordinates varied and uncorrelated, no labels (Bardes et al. 2022).

Args:
    invariance_lambda: weight of the difference between the views.
    variance_mu: weight of the coordinates' spread.
    covariance_v: weight of the coordinates' covariance.
    eps: added to a variance before its root.

Source: Bardes, Ponce and LeCun 2022, VICReg: variance-invariance-covariance regularization for
self-supervised learning.
"""
