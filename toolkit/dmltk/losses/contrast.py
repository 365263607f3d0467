"""The parts of a contrastive loss over several views: who attracts, who repels, how strongly.

R = V·B rows; `s` holds similarities over the temperature, (R, C), C columns being the rows
themselves and perhaps a queue. Everything stays in the log domain: no exp(1/t) is ever formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


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
