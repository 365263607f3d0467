"""The losses of pytorch-metric-learning that hold a vector or more for each class, by name.

Where nothing is given beside the class's name, the library's defaults hold.
"""

from __future__ import annotations

from torch import Tensor, nn

from dmltk.losses.pml import pml


def inverse_root_uniform(proxies: Tensor) -> None:
    """Draw (D, C) proxies uniformly from +-1/sqrt(D), in place."""
    bound = proxies.shape[0] ** -0.5
    nn.init.uniform_(proxies, -bound, bound)


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

Source: Deng et al. 2019, ArcFace: additive angular margin loss for deep face recognition.
"""

cosface = pml("CosFaceLoss")
"""CosFace: softmax over proxies with a margin on the cosine (Wang et al. 2018).

Args:
    margin: taken from the cosine between a picture and its class's proxy.

Source: Wang et al. 2018, CosFace: large margin cosine loss for deep face recognition.
"""

largemarginsoftmax = pml("LargeMarginSoftmaxLoss")
"""L-Softmax: softmax over proxies with a multiplied angle (Liu et al. 2016).

Args:
    margin: whole factor of the angle between a picture and its class's proxy.

Source: Liu et al. 2016, Large-margin softmax loss for convolutional neural networks.
"""

manifold = pml("ManifoldLoss")
"""Manifold loss: random walks over pictures and proxies, no labels (Aziere and Todorovic 2019).

Args:
    K: number of proxies; a batch holds at least as many pictures.
    lambdaC: weight of the part that compares a picture's and a proxy's surroundings.
    alpha: share of its similarity that a node passes on, between 0 and 1.
    margin: by which the own proxy is asked to be nearer than any other.

Source: Aziere and Todorovic 2019, Ensemble deep manifold similarity learning using hard proxies.
"""

normalizedsoftmax = pml("NormalizedSoftmaxLoss")
"""Normalized softmax: cross-entropy over unit-length proxies (Zhai and Wu 2019).

Source: Zhai and Wu 2019, Classification is a strong baseline for deep metric learning.
"""

p2sgrad = pml("P2SGradLoss")
"""P2SGrad: squared error between cosines to proxies and one-hot labels (Zhang et al. 2019).

Source: Zhang et al. 2019, P2SGrad: refined gradients for optimizing deep face models.
"""

proxyanchor = pml("ProxyAnchorLoss")
"""Proxy anchor: proxies are anchors to pictures of all classes (Kim et al. 2020).

Args:
    margin: similarity to the own proxy asked for; its negative to the others.
    alpha: sharpness over the pictures of a proxy.

Source: Kim et al. 2020, Proxy anchor loss for deep metric learning.
"""

proxynca = pml("ProxyNCALoss")
"""Proxy NCA: neighbourhood components with a proxy a class (Movshovitz-Attias et al. 2017).

Args:
    softmax_scale: factor of the distances.

Source: Movshovitz-Attias et al. 2017, No fuss distance metric learning using proxies.
"""

softtriple = pml("SoftTripleLoss")
"""SoftTriple: softmax over several centres a class (Qian et al. 2019).

Args:
    centers_per_class: proxies a class.
    la: factor of the similarities to classes.
    gamma: temperature of the choice among a class's proxies.
    margin: taken from the similarity to the own class.

Source: Qian et al. 2019, SoftTriple loss: deep metric learning without triplet sampling.
"""

sphereface = pml("SphereFaceLoss")
"""SphereFace: L-Softmax with unit-length proxies (Liu et al. 2017).

Args:
    margin: whole factor of the angle between a picture and its class's proxy.

Source: Liu et al. 2017, SphereFace: deep hypersphere embedding for face recognition.
"""

subcenterarcface = pml("SubCenterArcFaceLoss")
"""ArcFace with several centres a class, margin in degrees (Deng et al. 2020).

Args:
    margin: added to the angle between a picture and its class's nearest proxy, in degrees.
    sub_centers: proxies a class.

Source: Deng et al. 2020, Sub-center ArcFace: boosting face recognition by large-scale noisy web
faces.
"""
