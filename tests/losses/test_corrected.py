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


@pytest.mark.parametrize("scale", [1e-3, 0.3])
def test_dynamic_soft_margin_is_the_library_within_the_histogram(scale: float) -> None:
    y = torch.arange(4).repeat_interleave(2)
    z = normalize(1 + scale * unit(8), dim=1)
    loss, theirs = losses.build("dynamicsoftmargin"), library.DynamicSoftMarginLoss()
    for turn in range(3):
        torch.testing.assert_close(loss(z.roll(turn, 0), labels=y), theirs(z.roll(turn, 0), y))


def test_dynamic_soft_margin_takes_violations_beyond_its_last_bin() -> None:
    """Opposite positives and negatives alike: 2 - 0, where the last bin starts at 1.6."""
    z, y = torch.cat([unit(1), -unit(1)]).repeat(3, 1), torch.arange(3).repeat_interleave(2)
    loss = losses.build("dynamicsoftmargin")
    assert loss(z, labels=y) > 0
    assert loss.inner.hist_[8:].sum() > 0


def test_instance_draws_a_picture_to_the_first_of_its_class() -> None:
    z, labels = unit(7), [2, 0, 2, 1, 0, 1, 2]
    total = []
    for i in range(7):
        logits = torch.stack([64 * (z[i] @ z[j]) for j in range(7)])
        total.append(-logits.log_softmax(0)[labels.index(labels[i])])
    value = losses.build("instance")(z, labels=torch.tensor(labels))
    torch.testing.assert_close(value, torch.stack(total).mean(), rtol=1e-4, atol=1e-5)


def test_instance_is_the_library_where_the_first_pictures_are_the_classes_in_order() -> None:
    y = torch.tensor([0, 1, 2, 2, 1, 0])
    value = losses.build("instance")(unit(6), labels=y)
    torch.testing.assert_close(value, library.InstanceLoss()(unit(6), y))


def test_ranked_list_is_the_library_without_its_warning(recwarn: pytest.WarningsRecorder) -> None:
    z, y = unit(8), torch.arange(4).repeat_interleave(2)
    value = losses.build("rankedlist:margin=.3,Tn=9,Tp=2")(z, labels=y)
    assert not [w for w in recwarn if "Tp or Tn" in str(w.message)]
    with pytest.warns(UserWarning, match="Tp or Tn"):
        theirs = library.RankedListLoss(margin=0.3, Tn=9, Tp=2)
    torch.testing.assert_close(value, theirs(z, y))


def test_tuplet_margin_is_the_library_and_takes_duplicates() -> None:
    y = torch.arange(4).repeat_interleave(2)
    loss = losses.build("tupletmargin")
    torch.testing.assert_close(loss(unit(8), labels=y), library.TupletMarginLoss()(unit(8), y))
    z = unit(8)[[0, 0, 1, 1, 2, 2, 3, 3]].requires_grad_()
    value = loss(z, labels=y)
    value.backward()
    assert value.isfinite() and z.grad is not None and z.grad.isfinite().all()
