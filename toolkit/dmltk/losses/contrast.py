"""The parts of a contrastive loss over several views: who attracts, who repels, how strongly.

R = V·B rows; `s` holds similarities over the temperature, (R, C), C columns being the rows
themselves and perhaps a queue. Everything stays in the log domain: no exp(1/t) is ever formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dmltk.errors import UserError


@dataclass(frozen=True)
class Masks:
    """Which columns are positives and negatives of each row; the row itself is neither.

    Args:
        positive: (R, C) booleans.
        negative: (R, C) booleans.
    """

    positive: Tensor
    negative: Tensor


def masks(groups: Tensor, queued: int = 0) -> Masks:
    """Rows of one group attract each other, all others repel; so does a queue.

    Args:
        groups: (R,) integers: the instance, or the label.
        queued: further columns, negatives of every row.
    """
    same = groups[:, None] == groups
    own = torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    further = torch.ones(len(groups), queued, dtype=torch.bool, device=groups.device)
    return Masks(torch.cat([same & ~own, ~further], 1), torch.cat([~same, further], 1))


def similarities(anchors: Tensor, contrasts: Tensor, temperature: float) -> Tensor:
    """Cosines of unit rows over the temperature, (R, C)."""
    return anchors @ contrasts.T / temperature


def plain(s: Tensor, found: Masks) -> Tensor:
    """Log of the sum over all other columns, positives included, (R,)."""
    return _logsumexp(s, found.positive | found.negative)


@dataclass(frozen=True)
class Positives:
    """How pairs of a clean view and an adversary weigh, and whom they move.

    Args:
        adversaries: places of the adversarial views.
        alpha: share of such a pair's pull that moves the clean view; None moves both alike.
        weight: of such a pair.
        form: ``advcl`` or ``rocl``; see :func:`ainfonce`.
        release: whether, without alpha, one direction is overwritten by the other.

    Raises:
        UserError: a weight without an adversary.
    """

    adversaries: tuple[int, ...] = ()
    alpha: float | None = None
    weight: float = 1.0
    form: Literal["advcl", "rocl"] = "advcl"
    release: bool = False

    def __post_init__(self) -> None:
        if (self.alpha is not None or self.weight != 1) and not self.adversaries:
            raise UserError(
                "loss 'ainfonce' weighs pairs with an adversary and knows none: write"
                " adversaries=[2], the places of the adversarial views"
            )
        if len(set(self.adversaries)) < len(self.adversaries):
            raise UserError(
                f"loss 'ainfonce': adversaries={list(self.adversaries)} names one twice"
            )

    def combined(
        self,
        both: Tensor,
        stopped: Tensor,
        positive: Tensor,
        adversary: Tensor,
        alpha: float | None,
    ) -> Tensor:
        """What each ordered pair of positives costs, (R, R), zero elsewhere.

        Args:
            both: (R, R) the pairs' terms, gradient to both sides.
            stopped: the same with gradient to the anchor alone.
            positive: (R, R) booleans.
            adversary: (R,) which rows are adversaries.
            alpha: in force now.
        """
        clean_first = ~adversary[:, None] & adversary
        cross = clean_first | clean_first.T
        base = stopped if self.form == "rocl" else both
        if alpha is None and self.release and self.form == "advcl":
            weighed = (self.weight + self.weight**2) * base
            found = torch.where(cross, torch.where(clean_first, 0.0, weighed), base)
        elif alpha is None:
            found = torch.where(cross, self.weight * base, base)
        else:
            times = 1.0 if self.form == "rocl" else 2.0
            share = alpha * clean_first.to(both.dtype) + (1 - alpha) * clean_first.T.to(both.dtype)
            found = torch.where(cross, self.weight * times * share * stopped, base)
        return found.masked_fill(~positive, 0.0)


@dataclass(frozen=True)
class Hard:
    """Negatives weighted by their own similarity, and debiased (HCL; beta 0 is DCL).

    Args:
        beta: hardness: a negative's weight is exp(beta · s).
        tau: probability that a negative is of the anchor's class.
        temperature: of `s`; the floor hangs on it.
        detach_weights: whether weights send no gradient.
        release: as released code has it: weights and sums by column, the mean over all columns,
            a floor of temperature .5; ``row`` keeps the sums by row and the right floor.

    Source: Robinson et al. 2021, Contrastive learning with hard negative samples, eq. 4.
    """

    beta: float
    tau: float
    temperature: float
    detach_weights: bool = False
    release: str = ""

    def __call__(self, s: Tensor, found: Masks) -> tuple[Tensor, Tensor]:
        """Log of the denominator, (R,), and which rows' negatives sit on the floor.

        The denominator is the positives' mean plus the debiased sum of the negatives.
        """
        shift = 1 / self.temperature
        u = s - shift
        count = found.negative.sum(1).clamp(min=1)
        log_count = count.to(u.dtype).log()
        log_positive = _logsumexp(u, found.positive) - _log_count(found.positive, u)
        log_sum = self._weighted(u, found, log_count)
        floor = log_count - (2.0 if self.release == "column" else 2 * shift)
        log_bias = math.log(self.tau) + log_count + log_positive if self.tau else None
        log_rest, low = _rest(log_sum, log_bias, self.tau, floor)
        low = low & found.negative.any(1)
        log_rest = log_rest.masked_fill(~found.negative.any(1), -torch.inf)
        return torch.logaddexp(log_positive, log_rest) + shift, low

    def _weighted(self, u: Tensor, found: Masks, log_count: Tensor) -> Tensor:
        """Log of the negatives' sum, each weighted by q over the mean q, (R,)."""
        log_q = self.beta * (u.detach() if self.detach_weights else u)
        log_total = _logsumexp(log_q, found.negative)
        if not self.release:
            return _logsumexp(log_q + u, found.negative) - (log_total - log_count)
        log_mean = log_total - math.log(u.shape[1])
        return _logsumexp(log_q + u - log_mean[None, :], found.negative)


def _rest(
    log_sum: Tensor, log_bias: Tensor | None, tau: float, floor: Tensor
) -> tuple[Tensor, Tensor]:
    """Log of (sum − bias) / (1 − tau), not below the floor; and where it is the floor."""
    if log_bias is None:
        low = log_sum < floor
        return torch.where(low, floor, log_sum), low
    gap = log_bias - log_sum
    room = gap < 0
    inner = torch.log1p(-gap.masked_fill(~room, -1.0).exp())
    value = log_sum + inner - math.log(1 - tau)
    low = ~room | (value < floor)
    return torch.where(low, floor, value), low


def _logsumexp(s: Tensor, mask: Tensor) -> Tensor:
    """Over the columns of the mask; 0 (without gradient) in a row that has none."""
    some = mask.any(1)
    kept = s.masked_fill(~mask, -torch.inf)
    kept = torch.where(some[:, None], kept, torch.zeros_like(kept))
    return torch.logsumexp(kept, 1).where(some, torch.zeros((), dtype=s.dtype, device=s.device))


def _log_count(mask: Tensor, like: Tensor) -> Tensor:
    return mask.sum(1).clamp(min=1).to(like.dtype).log()
