"""Algorithm 1 of the paper against a matrix, and the provider "gauss-newton" against it."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import ksdmin
from tests.reference.multiply_g import multiply_g, of_cross_entropy, of_logistic, unit

SIZES = (4, 5, 3, 3)
TANH = (np.tanh, lambda h: 1 - np.tanh(h) ** 2)
IDENTITY = (lambda h: h, np.ones_like)
PHI, DPHI = zip(TANH, TANH, IDENTITY, strict=True)
ERRORS = {  # the error's Hessian, torch's loss, and how often the latter holds the error
    "squared": (unit, nn.MSELoss(reduction="sum"), 2),
    "cross-entropy": (of_cross_entropy, nn.CrossEntropyLoss(), 1),
    "logistic": (of_logistic, nn.BCEWithLogitsLoss(reduction="sum"), 1),
}


@pytest.fixture
def net():
    """Weights, a direction, inputs."""
    rng = np.random.default_rng(0)
    shapes = [(b, a) for a, b in pairwise(SIZES)]
    W, W_1 = ([rng.standard_normal(shape) for shape in shapes] for _ in range(2))
    return W, W_1, rng.standard_normal((6, SIZES[0]))


def forward(W, x):
    for weights, phi in zip(W, PHI, strict=True):
        x = phi(weights @ x)
    return x


def flat(W):
    return np.concatenate([weights.ravel() for weights in W])


@pytest.mark.parametrize("error", ERRORS)
def test_algorithm_1_is_a_matrix(net, error):
    """J^T H J, with J by complex steps."""
    W, W_1, X = net
    H = ERRORS[error][0]
    columns = []
    for i, weights in enumerate(W):
        for j in np.ndindex(weights.shape):
            stepped = [w.astype(complex) for w in W]
            stepped[i][j] += 1e-30j
            columns.append(forward(stepped, X[0]).imag / 1e-30)
    J = np.array(columns).T
    product = multiply_g(W, W_1, X[0], PHI, DPHI, H)
    assert_allclose(
        flat(product), J.T @ H(forward(W, X[0])) @ J @ flat(W_1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("error", ERRORS)
def test_the_provider_is_algorithm_1(net, error):
    W, W_1, X = net
    H, loss, factor = ERRORS[error]
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(SIZES)]
    model = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2]).double()
    y = np.zeros((len(X), SIZES[-1]))
    targets = y[:, 0].astype(np.int64) if error == "cross-entropy" else y
    problem = ksdmin.from_torch(model, loss, (X, targets), curvature="gauss-newton")
    theta, theta_1 = (torch.from_numpy(flat(weights)) for weights in (W, W_1))
    for idx in ([2], [0, 1, 4], slice(None)):
        of_samples = [flat(multiply_g(W, W_1, x, PHI, DPHI, H)) for x in X[idx]]
        product = problem.curvature(theta, idx)(theta_1)
        assert_allclose(product, factor * np.mean(of_samples, axis=0), rtol=1e-10, atol=1e-12)
