"""What goes wrong in pair training without an error: said in the log, and warned of once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dmltk.pipelines.structure import Term
from dmltk.training.config import Config

COLLAPSED = 0.01
"""A mean distance below this share of the margin is a collapse, where the loss stalls too."""
FEW = 0.1
"""Fewer active unlike pairs than this share, and most of a batch teaches nothing."""
CALM = 2.0
"""Plain gradient descent has been seen to collapse above this lr · margin², not below."""
FLAT = 0.999
Sums = dict[str, float]


class Diagnostics:
    """Follows the pairs of each term's first reference through an epoch.

    Distances are Euclidean, of the embeddings as they are. Pairs are those that the loss looks at
    where it says so (`rows`), else all of the batch.

    Args:
        config: of the run.
        losses: one a term.
        model: whose tanh, sigmoid and ReLU units are watched.
    """

    def __init__(self, config: Config, losses: Sequence[nn.Module], model: nn.Module) -> None:
        self.terms = config.pipeline.terms
        self.losses, self.model = list(losses), model
        self.said: set[str] = set()
        if config.optimizer == "sgd":
            self._warn_of_long_steps(config.lr)

    def see(
        self, sums: Sums, embeddings: Mapping[tuple[str, str], Tensor], views: Mapping[str, Any]
    ) -> None:
        """Add what a step's embeddings show to the sums of the epoch."""
        for number, term in enumerate(self.terms):
            of = term.references[0]
            key, labels = (of.branch, of.head), _labels(term, views[of.branch])
            if key not in embeddings or labels is None:
                continue
            found = pairs(embeddings[key].detach(), labels, self.losses[number])
            for name, value in found.items():
                place = f"{number}.{name}"
                sums[place] = sums.get(place, 0.0) + value

    def finished(self, sums: Sums, means: Sequence[float], images: Tensor) -> dict[str, Any]:
        """The epoch's figures by term, for the log; warns of what they mean.

        Args:
            sums: of the epoch.
            means: each term's mean value, unweighted.
            images: a batch's pictures, for the units.
        """
        saturated = self.saturated(images)
        entry: dict[str, Any] = {"saturated_units": saturated}
        for number, (loss, value) in enumerate(zip(self.losses, means, strict=True)):
            own = {k.partition(".")[2]: v for k, v in sums.items() if k.startswith(f"{number}.")}
            if own.get("pairs"):
                entry[f"terms.{number}"] = found = figures(own, loss)
                self._warn(number, found, value, saturated)
        return entry

    def saturated(self, images: Tensor) -> float | None:
        """The share of units that are flat for every picture; None where there are none.

        A tanh or sigmoid unit is flat within .001 of its bounds, a ReLU at 0.
        """
        if not len(images):
            return None
        flat: list[Tensor] = []
        training = self.model.training
        self.model.eval()
        with _watched(self.model, lambda part, out: flat.append(_flat(part, out))), torch.no_grad():
            self.model(images, route="main")
        self.model.train(training)
        units = torch.cat(flat) if flat else torch.zeros(0)
        return units.float().mean().item() if len(units) else None

    def _warn_of_long_steps(self, lr: float) -> None:
        for term, loss in zip(self.terms, self.losses, strict=True):
            margin = getattr(loss, "margin", None)
            if margin is None or getattr(loss, "per_margin", False) or lr * margin**2 <= CALM:
                continue
            warnings.warn(
                f"{term.loss}: steps of lr · margin² = {lr * margin**2:g} may collapse the"
                f" embeddings: write --lr {lr / margin**2:g}, or lr_per_margin=true",
                stacklevel=2,
            )

    def _warn(self, number: int, found: Sums, value: float, saturated: float | None) -> None:
        term, loss = self.terms[number], self.losses[number]
        if not found["unlike_pairs"]:
            self._say(
                "pulls alone",
                f"{term.loss} sees no unlike pair: that all meet in one point is its minimum",
            )
        if found["zero_unlike_pairs"]:
            self._say(
                "zero distance",
                f"{term.loss} has {found['zero_unlike_pairs']:.0f} unlike pairs at distance zero in"
                " an epoch: they have no direction to part in",
            )
        if found.get("past_margin", 0.0) > 1 - FEW:
            self._say(
                "past the margin",
                f"{term.loss}: {found['past_margin']:.0%} of the unlike pairs are past the margin"
                " and teach nothing: mine hard ones",
            )
        self._warn_of_collapse(term, loss, found, value, saturated)

    def _warn_of_collapse(
        self, term: Term, loss: nn.Module, found: Sums, value: float, saturated: float | None
    ) -> None:
        stall = stalled(found, loss)
        if stall is None or found["mean_distance"] >= COLLAPSED * getattr(loss, "margin", 0.0):
            return
        if abs(value - stall) < 0.01 * stall:
            flat = "" if saturated is None else f", {saturated:.0%} of the units are flat"
            self._say(
                "collapse",
                f"{term.loss} has collapsed: mean distance {found['mean_distance']:.2g}, the loss"
                f" stands at {stall:.4g}{flat}; start again with a smaller learning rate",
            )

    def _say(self, about: str, text: str) -> None:
        if about not in self.said:
            self.said.add(about)
            warnings.warn(text, stacklevel=3)


def pairs(embeddings: Tensor, labels: Tensor, loss: nn.Module) -> Sums:
    """Sums over the pairs of a batch.

    Args:
        embeddings: (N, D).
        labels: (N,).
        loss: its `margin` and `rows`, where it has them.
    """
    count = len(embeddings)
    rows: Callable[..., tuple[Tensor, Tensor]] | None = getattr(loss, "rows", None)
    if rows is not None:
        first, second = rows(count, embeddings.device)
    else:
        first, second = torch.triu_indices(count, count, offset=1, device=embeddings.device)
    distance = torch.linalg.vector_norm((embeddings[first] - embeddings[second]).float(), dim=1)
    unlike = labels[first] != labels[second]
    found = {
        "pairs": float(len(distance)),
        "unlike": float(unlike.sum()),
        "distance": distance.double().sum().item(),
        "zero": float((unlike & (distance == 0)).sum()),
    }
    margin = getattr(loss, "margin", None)
    if isinstance(margin, float):
        found["past"] = float((unlike & (distance >= margin)).sum())
    return found


def figures(sums: Sums, loss: nn.Module) -> Sums:
    """What an epoch's sums say: `mean_distance`, `unlike_pairs`, `past_margin`…"""
    found = {
        "mean_distance": sums["distance"] / sums["pairs"],
        "pairs": sums["pairs"],
        "unlike_pairs": sums["unlike"],
        "zero_unlike_pairs": sums["zero"],
    }
    if "past" in sums and sums["unlike"]:
        found["past_margin"] = sums["past"] / sums["unlike"]
    return found


def stalled(found: Sums, loss: nn.Module) -> float | None:
    """The value at which a margin loss stands when all meet in one point; None for others."""
    margin = getattr(loss, "margin", None)
    if not isinstance(margin, float) or not hasattr(loss, "per_margin"):
        return None
    scale = 1.0 if loss.per_margin else margin**2
    return found["unlike_pairs"] / found["pairs"] * scale / 2


def _labels(term: Term, view: Any) -> Tensor | None:
    return {"labels": view.labels, "index": view.index, **view.extra}.get(term.labels)


def _flat(part: nn.Module, out: Tensor) -> Tensor:
    if isinstance(part, nn.Tanh):
        flat = out.abs() > FLAT
    elif isinstance(part, nn.Sigmoid):
        flat = (out - 0.5).abs() > FLAT / 2
    else:
        flat = out == 0
    return flat.all(0).flatten().cpu()


@contextmanager
def _watched(model: nn.Module, see: Callable[[nn.Module, Tensor], None]) -> Iterator[None]:
    kinds = nn.Tanh | nn.Sigmoid | nn.ReLU | nn.ReLU6
    hooks = [
        part.register_forward_hook(lambda module, _, out: see(module, out))
        for part in model.modules()
        if isinstance(part, kinds)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
