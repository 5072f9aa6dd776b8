"""Weights of samples: the objective is sum(w l) / sum(w), as in scikit-learn and in from_torch."""

import numpy as np
import pytest
import torch

import ksdmin
from tests.adapters.functional.backends import CLOSE, SOME, N, make, parameters, samples
from tests.adapters.functional.dense import TORCH_LOSSES, Net

LOSS = "softmax-cross-entropy"
WEIGHTS = np.random.default_rng(5).integers(0, 4, N).astype(float)


def theirs(**options):
    X, y = (torch.as_tensor(part) for part in samples(LOSS))
    return ksdmin.from_torch(Net(parameters()), TORCH_LOSSES[LOSS], (X, y), **options)


@pytest.mark.parametrize("provider", ["hessian", "gauss-newton", "empirical-fisher"])
def test_the_same_numbers_as_from_torch(backend, provider):
    options = {"curvature": provider, "sample_weight": WEIGHTS, "chunk_size": 10}
    ours, other = make(backend, LOSS, **options), theirs(**options)
    v = np.random.default_rng(0).standard_normal(len(ours.x0))
    for idx in (slice(None), SOME):
        found = ours.value_and_gradient(ours.x0, idx, diagonal=True)
        right = other.value_and_gradient(other.x0, idx, diagonal=True)
        for one, another in zip(found, right, strict=True):
            np.testing.assert_allclose(one, another, **CLOSE)
        product = other.curvature(other.x0, idx)(torch.as_tensor(v))
        mine = ours.curvature(ours.x0, idx)(backend.array(v))
        np.testing.assert_allclose(mine, product, **CLOSE)


def test_drawn_labels_have_their_weight_once(backend):
    """The Fisher matrix is the Gauss-Newton matrix on average."""
    n, start = 4000, {"slope": np.zeros((1, 1))}
    X, y = np.ones((n, 1)), np.zeros((n, 1))
    weights = np.tile([1.0, 9.0], n // 2)
    products = [
        backend.make(
            lambda params, inputs: inputs @ params["slope"], "squared-error", (X, y),
            params=start, curvature=kind, sample_weight=weights,
        ).curvature(backend.array([0.0]))(backend.array([1.0]))
        for kind in ("fisher", "gauss-newton")
    ]  # fmt: skip
    np.testing.assert_allclose(*products, rtol=0.15)


def test_a_diagonal_sample_by_sample():
    """A model that autograd differentiates sample by sample."""
    anp = pytest.importorskip("autograd.numpy")

    def model(params, inputs):
        return inputs @ (params * params)  # used twice: no formula for all samples at once

    X = np.random.default_rng(0).standard_normal((5, 2))
    weights = np.array([1.0, 0.0, 2.0, 4.0, 3.0])
    options = {"params": anp.ones((2, 1))}
    data = X, np.ones((5, 1))
    found = ksdmin.from_autograd(model, "squared-error", data, sample_weight=weights, **options)
    alone = ksdmin.from_autograd(model, "squared-error", data, **options)
    w, x = weights / weights.mean(), found.x0
    one = [alone.value_and_gradient(x, np.array([i]), diagonal=True) for i in range(5)]
    got = found.value_and_gradient(x, diagonal=True)
    for k, power in ((0, 1), (1, 1), (2, 2)):
        right = sum(w[i] ** power * one[i][k] for i in range(5)) / 5
        np.testing.assert_allclose(got[k], right, **CLOSE)


@pytest.mark.parametrize("weights", [[1.0], [-1.0] * N, [np.nan] * N, [0.0] * N])
def test_refused(weights):
    pytest.importorskip("autograd")
    from tests.adapters.functional.backends import autograd_backend

    with pytest.raises(ValueError, match="sample_weight"):
        make(autograd_backend(), LOSS, sample_weight=weights)
