"""Siamese training, and the classifier that it is compared with."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dmltk.pipelines.structure import Branch, Head, Pipeline, Term

Size = Annotated[int, msgspec.Meta(ge=1)]
Above = Annotated[float, msgspec.Meta(gt=0)]


def siamese(
    *,
    margin: Above = 1.0,
    pairs: Literal["all", "adjacent"] = "all",
    lr_per_margin: bool = False,
    dim: Size = 8,
) -> Pipeline:
    """Siamese training: like pairs together, unlike ones a margin apart, one pass a picture.

    Made for plain gradient descent (`--optimizer sgd --momentum 0 --schedule constant`). Another
    loss of pairs or triplets goes in its place with `--loss`, such as
    `tripletmargin:miner=tripletmargin(type_of_triplets=semihard)`.

    Args:
        margin: the distance from which an unlike pair costs nothing.
        pairs: `all` pairs of a batch, or the `adjacent` ones of a batch of drawn pairs.
        lr_per_margin: train as at lr / margin².
        dim: length of the embedding, which is not scaled to unit length.

    Source: Hadsell, Chopra and LeCun 2006, Dimensionality reduction by learning an invariant
        mapping.
    """
    options = [f"margin={margin:g}"]
    options += [f"pairs={pairs}"] if pairs != "all" else []
    options += ["per_margin=true"] if lr_per_margin else []
    return _plain(f"hadsell:{','.join(options)}", dim)


def classifier(*, loss: str = "softmax") -> Pipeline:
    """A classifier's training: the embedding is what its last linear layer takes.

    Args:
        loss: loss spec; its own layer gives the scores.

    Source: Zhai and Wu 2019, Classification is a strong baseline for deep metric learning.
    """
    return _plain(loss, 0)


def _plain(loss: str, dim: int) -> Pipeline:
    head = {"embed": Head(dim=dim, unit=False)}
    return Pipeline({"main": Branch()}, (Term(loss=loss, of=("main",)),), heads=head)
