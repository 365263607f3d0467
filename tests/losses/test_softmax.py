from __future__ import annotations

import math

import dmltk
import pytest
import torch
from dmltk.errors import UserError
from dmltk.losses.softmax import Softmax


def test_it_is_the_cross_entropy_of_a_linear_layer_over_labelled_pictures() -> None:
    loss = Softmax(4, 3, seed=5)
    z, labels = torch.randn(6, 3), torch.tensor([0, 3, -1, 2, 2, -1])
    weight, bias = loss.weight.detach(), loss.bias.detach()
    costs = []
    for row, label in zip(z, labels.tolist(), strict=True):
        scores = [float(w @ row + b) for w, b in zip(weight, bias, strict=True)]
        if label >= 0:
            costs.append(math.log(sum(map(math.exp, scores))) - scores[label])
    assert loss(z, labels=labels).item() == pytest.approx(sum(costs) / 4, rel=1e-5)


def test_no_label_at_all_is_a_connected_zero() -> None:
    loss, z = Softmax(2, 3), torch.randn(2, 3, requires_grad=True)
    value = loss(z, labels=torch.tensor([-1, -1]))
    value.backward()
    assert value.item() == 0
    assert loss.inactive == 1
    assert not z.grad.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("labels", [[0, 2], [-2, 0]])
def test_other_labels_are_refused(labels: list[int]) -> None:
    with pytest.raises(UserError, match="labels 0 to 1"):
        Softmax(2, 3)(torch.randn(2, 3), labels=torch.tensor(labels))


def test_it_separates_what_is_separable() -> None:
    loss = dmltk.build("losses", "softmax", context={"num_classes": 3, "embedding_size": 3})
    z, labels = torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4)
    optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
    for _ in range(100):
        optimizer.zero_grad()
        loss(z, labels=labels).backward()
        optimizer.step()
    assert ((z @ loss.weight.T + loss.bias).argmax(1) == labels).all()
