from __future__ import annotations

import pytest
import torch
from dmltk import losses
from pytorch_metric_learning import losses as library
from torch import Tensor
from torch.nn.functional import normalize

pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")


def unit(rows: int) -> Tensor:
    return normalize(torch.randn(rows, 8, generator=torch.Generator().manual_seed(0)), dim=1)


def smooth_ap(z: Tensor, y: Tensor, temperature: float = 0.01) -> Tensor:
    """Brown et al. 2020, equation 7, by loops."""
    s, total = z @ z.T, []
    for i in range(len(z)):
        same = [j for j in range(len(z)) if y[j] == y[i]]
        precisions = []
        for j in same:
            ahead = [torch.sigmoid((s[i, k] - s[i, j]) / temperature) for k in range(len(z))]
            among = 1 + sum(ahead[k] for k in same if k != j)
            rank = 1 + sum(ahead[k] for k in range(len(z)) if k != j)
            precisions.append(among / rank)
        total.append(1 - sum(precisions) / len(same))
    return torch.stack(total).mean()


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 0, 2, 1, 0, 0, 3]])
def test_smooth_ap_is_the_paper_for_any_batch(labels: list[int]) -> None:
    z, y = unit(8), torch.tensor(labels)
    torch.testing.assert_close(losses.build("smoothap")(z, labels=y), smooth_ap(z, y))


def test_smooth_ap_is_the_library_where_that_is_right() -> None:
    z, y = unit(16), torch.arange(4).repeat_interleave(4)
    torch.testing.assert_close(losses.build("smoothap")(z, labels=y), library.SmoothAPLoss()(z, y))


def test_histogram_is_the_library_and_takes_duplicates() -> None:
    z, y = unit(8), torch.arange(4).repeat_interleave(2)
    loss = losses.build("histogram")
    torch.testing.assert_close(loss(z, labels=y), library.HistogramLoss()(z, y))
    assert loss(z[[0, 0, 1, 1]], labels=y[:4]).isfinite()


def test_dynamic_soft_margin_is_the_library_and_trains_on() -> None:
    z, y = unit(8).requires_grad_(), torch.arange(4).repeat_interleave(2)
    loss = losses.build("dynamicsoftmargin")
    torch.testing.assert_close(loss(z, labels=y), library.DynamicSoftMarginLoss()(z, y))
    for _ in range(2):
        loss(z, labels=y).backward()


def test_tuplet_margin_is_the_library_and_takes_duplicates() -> None:
    y = torch.arange(4).repeat_interleave(2)
    loss = losses.build("tupletmargin")
    torch.testing.assert_close(loss(unit(8), labels=y), library.TupletMarginLoss()(unit(8), y))
    z = unit(8)[[0, 0, 1, 1, 2, 2, 3, 3]].requires_grad_()
    value = loss(z, labels=y)
    value.backward()
    assert value.isfinite() and z.grad is not None and z.grad.isfinite().all()
