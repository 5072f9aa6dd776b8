"""Weights of samples: the objective is sum(w l) / sum(w), as in scikit-learn."""

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import assert_close, directions, make, point
from tests.adapters.torch.zoo import ZOO

N = 7
WEIGHTS = np.array([0.0, 1.0, 3.0, 0.5, 2.0, 1.0, 4.0])
W = torch.tensor(WEIGHTS) / WEIGHTS.mean()
CURVATURES = ("hessian", "gauss-newton", "empirical-fisher")


@pytest.mark.parametrize("kind", CURVATURES)
@pytest.mark.parametrize("name", ["mlp", "tied"])
@pytest.mark.parametrize("idx", [slice(None), torch.tensor([1, 2, 5, 6])], ids=["whole", "set"])
def test_against_single_samples(name, kind, idx):
    """Means over the set of w_i / mean(w) times the loss; squares have the squared weight."""
    found, alone = make(name, curvature=kind, sample_weight=WEIGHTS), make(name, curvature=kind)
    x, v = point(found), directions(found.x0, 1)[:, 0]
    rows = range(N) if isinstance(idx, slice) else idx.tolist()
    value = g = squares = product = 0.0
    for i in rows:
        one = alone.value_and_gradient(x, [i], diagonal=True)
        value, g = value + W[i] * one[0], g + W[i] * one[1]
        squares = squares + W[i] ** 2 * one[2]
        power = 2 if kind == "empirical-fisher" else 1
        product = product + W[i] ** power * alone.curvature(x, [i])(v)
    got = *found.value_and_gradient(x, idx, diagonal=True), found.curvature(x, idx)(v)
    for one, total in zip(got, (value, g, squares, product), strict=True):
        assert_close(torch.as_tensor(one, dtype=torch.float64), total / len(rows), 1e-12)


def test_with_the_weights_of_classes():
    """Both multiply, in the sum of the losses and in that of the weights."""
    case = ZOO["tied"]()
    X, y = case.data
    classes = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    loss = nn.CrossEntropyLoss(weight=classes)
    found = ksdmin.from_torch(case.model, loss, (X, y), sample_weight=WEIGHTS)
    both = torch.tensor(WEIGHTS) * classes[y]
    right = ksdmin.from_torch(case.model, nn.CrossEntropyLoss(), (X, y), sample_weight=both)
    x = point(found)
    for one, other in zip(found.value_and_gradient(x), right.value_and_gradient(x), strict=True):
        assert_close(one, other, 1e-13)


@pytest.mark.parametrize("weights", [3.0 * np.ones(N), [1] * N, torch.ones(N)])
def test_equal_weights_change_nothing(weights):
    found, right = make("mlp", sample_weight=weights), make("mlp")
    assert found._sums.samples.has_equal_weights
    assert found.value(found.x0) == right.value(right.x0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * (N - 1), r"shape \(6,\): expected one number for each of the 7 samples"),
        (np.ones((N, 1)), r"shape \(7, 1\)"),
        ([1.0] * (N - 1) + [-2.0], r"sample_weight\[6\] is -2.0"),
        ([np.nan] + [1.0] * (N - 1), r"sample_weight\[0\] is nan"),
        ([np.inf] + [1.0] * (N - 1), r"sample_weight\[0\] is inf"),
        ([0.0] * N, "every weight is zero"),
    ],
)
def test_refused_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        make("mlp", sample_weight=weights)


@pytest.mark.cuda
@pytest.mark.parametrize("budget", [None, 1.0])
def test_on_cuda(budget):
    case = ZOO["mlp"]()
    here = ksdmin.from_torch(case.model, case.loss, case.data, sample_weight=WEIGHTS)
    there = ksdmin.from_torch(
        case.model.cuda(), case.loss, case.data, sample_weight=WEIGHTS, memory_budget=budget,
        chunk_size=3,
    )  # fmt: skip
    x, v = point(here), directions(here.x0, 1)[:, 0]
    for idx in (slice(None), torch.tensor([1, 2, 5, 6])):
        found = there.value_and_gradient(x.cuda(), idx, diagonal=True)
        for one, other in zip(found, here.value_and_gradient(x, idx, diagonal=True), strict=True):
            assert_close(torch.as_tensor(one).cpu(), other, 1e-10)
        product = there.curvature(x.cuda(), idx)(v.cuda())
        assert_close(product.cpu(), here.curvature(x, idx)(v), 1e-10)
