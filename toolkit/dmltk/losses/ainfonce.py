"""Asymmetric InfoNCE: views of each picture, adversaries as inferior positives, hard negatives."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn

from dmltk.errors import DmltkError, UserError
from dmltk.losses.contrast import Hard, Masks, Positives, masks, plain, similarities

__all__ = ["AInfoNCE", "ainfonce"]

Place = Annotated[int, Meta(ge=0)]
UNIT = 1e-2
"""How far from 1 the length of an embedding may be, in single precision."""
MANY = 0.1
"""A larger share of anchors on the floor is warned of."""


class AInfoNCE(nn.Module):
    """A contrastive loss over views of the same instances, of six parts.

    Similarity: the cosine over the temperature, gradient to both sides or to the anchor alone.
    Positives: the other views of an instance, or of a label. Negatives: the rest of the batch, and
    a queue. Positive weights: :class:`Positives`. Negative weights and debiasing: :class:`Hard`.

    Args:
        temperature: divisor of the cosines.
        base_temperature: the value is times temperature / base_temperature.
        positives: the weights of positive pairs.
        hard: the weights of negatives; None for none.
        by_label: whether all pictures of a label are positives of each other.
        queue: past embeddings that are negatives too.
        embedding_size: their length.
        warm: training calls in which the mean distance is taken, before alpha moves; 0 keeps it.
        least: the distance at which alpha is 1/2, as a share of the mean one.

    Attributes:
        alpha_now: the alpha of the last call.

    Raises:
        UserError: a queue beside labels, or without the length of an embedding.
    """

    dmltk_kind = "losses"
    name = "ainfonce"
    takes = "views"
    past: Tensor
    held: Tensor
    distance: Tensor
    calls: Tensor

    def __init__(
        self,
        temperature: float = 0.5,
        base_temperature: float | None = None,
        *,
        positives: Positives | None = None,
        hard: Hard | None = None,
        by_label: bool = False,
        queue: int = 0,
        embedding_size: int = 0,
        warm: int = 0,
        least: float = 0.5,
    ) -> None:
        super().__init__()
        if queue and by_label:
            raise UserError(
                "loss 'ainfonce': a queue keeps no labels, so positives=labels cannot go with it"
            )
        if queue and not embedding_size:
            raise UserError("loss 'ainfonce': a queue needs embedding_size, which a run offers")
        self.temperature = temperature
        self.scale = temperature / (base_temperature or temperature)
        self.positives = positives or Positives()
        self.hard, self.by_label = hard, by_label
        self.warm, self.least = warm, least
        self.alpha_now = self.positives.alpha
        self.inactive, self.told = 0, False
        self.register_buffer("past", torch.zeros(queue, embedding_size))
        self.register_buffer("held", torch.zeros((), dtype=torch.long))
        self.register_buffer("distance", torch.zeros((), dtype=torch.float64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(
        self, *embeddings: Tensor, labels: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: views (B, D) of the same B pictures, of unit length, two at least; where
                alpha adapts, then the features of the clean picture and of its adversary (B, F).
            labels: (B,) integers; needed where labels decide who is a positive.
            index: not used.

        Returns:
            A scalar, float32 at least; a connected zero where no row has a positive.

        Raises:
            UserError: fewer than two views or pictures, views of several shapes, not unit length.
        """
        views, features = self._parted(embeddings)
        with torch.autocast(views[0].device.type, enabled=False):
            self._check(views)
            wide = [v if v.dtype == torch.float64 else v.float() for v in views]
            alpha = self._alpha(features)
            value = self._value(wide, labels, alpha)
            if self.training and len(self.past):
                clean = [v for i, v in enumerate(wide) if i not in self.positives.adversaries]
                self._remember(clean[0].detach())
        return value

    def _value(self, views: list[Tensor], labels: Tensor | None, alpha: float | None) -> Tensor:
        count, z = len(views[0]), torch.cat(views)
        groups = torch.arange(count, device=z.device)
        if self.by_label:
            if labels is None or len(labels) != count:
                raise DmltkError("loss 'ainfonce:positives=labels' needs a label for each picture")
            groups = labels.to(z.device)
        past = self.past[: int(self.held.clamp(max=len(self.past)))].to(z)
        found = masks(groups.repeat(len(views)), len(past))
        others = torch.cat([z, past]) if len(past) else z
        stopping = self.positives.form == "rocl" or alpha is not None
        both = self._pairs(similarities(z, others, self.temperature), found)
        stopped = both
        if stopping:
            stopped = self._pairs(similarities(z, others.detach(), self.temperature), found)
        view = torch.arange(len(views), device=z.device).repeat_interleave(count)
        places = torch.tensor(self.positives.adversaries, device=z.device, dtype=torch.long)
        positive = found.positive[:, : len(z)]
        costs = self.positives.combined(both, stopped, positive, torch.isin(view, places), alpha)
        anchors = positive.sum(1)
        if not anchors.any():
            self.inactive += 1
            return z.sum() * 0
        each = costs.sum(1)
        if self.positives.form == "advcl":
            each = each / anchors.clamp(min=1)
        return self.scale * each[anchors > 0].mean()

    def _pairs(self, s: Tensor, found: Masks) -> Tensor:
        """The term of each row as the anchor of each other row, (R, R)."""
        rows = len(s)
        if self.hard is None:
            return plain(s, found)[:, None] - s[:, :rows]
        denominator, low = self.hard(s, found)
        if not self.told and low.float().mean() > MANY:
            self.told = True
            warnings.warn(
                f"ainfonce: the negatives of {low.float().mean():.0%} of the anchors sit on their"
                " floor and repel nothing: lower tau",
                stacklevel=2,
            )
        by_column = self.hard.release == "column"
        return (denominator[None, :] if by_column else denominator[:, None]) - s[:, :rows]

    def _parted(self, given: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        cut = len(given) - 2 if self.warm else len(given)
        views = list(given[:cut])
        if len(views) < 2 or len(views) <= max(self.positives.adversaries, default=0):
            further = " and two features" if self.warm else ""
            least = max([2, *(place + 1 for place in self.positives.adversaries)])
            raise UserError(
                f"loss 'ainfonce' takes two views of each picture, got {len(given)}: use join: args"
                f" in its term, with {least} views at least{further}"
            )
        return views, list(given[cut:])

    def _check(self, views: list[Tensor]) -> None:
        shape = views[0].shape
        if any(view.shape != shape for view in views) or len(shape) != 2:
            shapes = ", ".join(str(tuple(view.shape)) for view in views)
            raise UserError(f"loss 'ainfonce' takes views of one shape (B, D), got {shapes}")
        if shape[0] < 2:
            raise UserError(
                f"loss 'ainfonce' needs two pictures at least, got {shape[0]}: without another one"
                " there is no negative"
            )
        if len(self.past) and shape[1] != self.past.shape[1]:
            raise UserError(
                f"loss 'ainfonce' keeps a queue of {self.past.shape[1]} numbers, got {shape[1]}:"
                " leave embedding_size to the run"
            )
        lengths = torch.cat([view.detach().float().norm(dim=1) for view in views])
        if (lengths - 1).abs().max() > max(UNIT, 4 * torch.finfo(views[0].dtype).eps):
            raise UserError(
                "loss 'ainfonce' takes embeddings of unit length, and these are not: use a head"
                " with unit: true"
            )

    def _alpha(self, features: list[Tensor]) -> float | None:
        """The alpha in force: what was given while it is warm, then by the features' distance."""
        start = self.positives.alpha
        if not self.warm or start is None:
            return start
        clean, adversary = (nn.functional.normalize(f.detach().double(), dim=1) for f in features)
        gap = (clean - adversary).norm(dim=1).mean()
        if self.training and self.calls < self.warm:
            self.calls += 1
            self.distance += (gap - self.distance) / self.calls
            self.alpha_now = start
            return start
        mean, now = float(self.distance), float(gap)
        least = self.least * mean
        share = 1.0 if now < least else (mean - now) / (mean - least) if now < mean else 0.0
        self.alpha_now = start + (0.5 - start) * share
        return self.alpha_now

    def _remember(self, view: Tensor) -> None:
        """Write a batch over the oldest embeddings of the queue."""
        places = (torch.arange(len(view), device=view.device) + self.held) % len(self.past)
        self.past[places[-len(self.past) :]] = view[-len(self.past) :].to(self.past)
        self.held += len(view)


def ainfonce(
    *,
    temperature: Annotated[float, Meta(gt=0)] = 0.5,
    base_temperature: Annotated[float, Meta(gt=0)] | None = None,
    positives: Literal["instances", "labels"] = "instances",
    adversaries: tuple[Place, ...] = (),
    alpha: Annotated[float, Meta(ge=0, le=0.5)] | None = None,
    alpha_warm: Annotated[int, Meta(ge=0)] = 0,
    alpha_least: Annotated[float, Meta(gt=0, lt=1)] = 0.5,
    cross_weight: Annotated[float, Meta(gt=0)] = 1.0,
    beta: Annotated[float, Meta(ge=0)] | None = None,
    tau: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
    detach_weights: bool = False,
    queue: Annotated[int, Meta(ge=0)] = 0,
    embedding_size: Annotated[int, Meta(ge=0)] = 0,
    form: Literal["advcl", "rocl"] = "advcl",
    variant: Literal["paper", "release"] = "paper",
) -> AInfoNCE:
    """Asymmetric InfoNCE over two or more views of each picture, adversaries among them.

    With neither alpha nor beta it is InfoNCE: every other view of a picture is a positive, the
    rest of the batch repels. An `alpha` makes adversaries inferior positives: their pull moves the
    clean view by the share alpha only. A `beta` makes negatives weigh by their similarity.

    Args:
        temperature: divisor of the cosines.
        base_temperature: the value and every gradient are times temperature / base_temperature,
            so that published rates at .07 beside .5 are 7.14 times too large here; none is 1.
        positives: the other views of an `instances`, or all pictures of its `labels`.
        adversaries: places, from 0, of the views that are adversaries.
        alpha: share of a clean-adversarial pair's pull that moves the clean view, from 0 to 1/2;
            none stops no gradient.
        alpha_warm: training calls after which alpha follows the distance of clean and adversarial
            features, the term's last two tensors: the nearer, the closer to 1/2; 0 keeps it.
        alpha_least: the distance at which it is 1/2, as a share of the mean one of those calls.
        cross_weight: weight of clean-adversarial pairs.
        beta: hardness of negatives; 0 weighs them alike, none leaves debiasing out too.
        tau: probability that a negative is of the anchor's class, taken off; needs beta.
        detach_weights: whether the weights of negatives send no gradient.
        queue: past embeddings of the first clean view that repel too.
        embedding_size: length of an embedding, for the queue.
        form: where the mean is taken: `advcl` over the positives of each anchor, both orders of an
            inferior pair; `rocl` sums them, one order, and stops every contrast's gradient.
        variant: `paper`, or `release`, which departs from it as the authors' code does.

    Source: Yu et al. 2022, Adversarial contrastive learning via asymmetric InfoNCE; Robinson et
        al. 2021 for the negatives; Fan et al. 2021 (AdvCL) and Kim et al. 2020 (RoCL) for forms.
    """
    if alpha_warm and alpha is None:
        raise UserError("loss 'ainfonce': alpha_warm needs alpha, the value to start from")
    if tau and beta is None:
        raise UserError("loss 'ainfonce': tau needs beta; write beta=0 to debias alone")
    released = variant == "release"
    along = ("row" if form == "rocl" else "column") if released else ""
    hard = None if beta is None else Hard(beta, tau, temperature, detach_weights, along)
    return AInfoNCE(
        temperature,
        base_temperature,
        positives=Positives(tuple(adversaries), alpha, cross_weight, form, released),
        hard=hard,
        by_label=positives == "labels",
        queue=queue,
        embedding_size=embedding_size if queue else 0,
        warm=alpha_warm,
        least=alpha_least,
    )


ainfonce.facts = {  # type: ignore[attr-defined]
    "takes": "two or more embeddings of each picture",
    "compares by": "cosine",
}
