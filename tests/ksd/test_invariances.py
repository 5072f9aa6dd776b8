"""What a run must not depend on: a constant added to its loss, scales, orders."""

import numpy as np
import pytest
import torch
from scipy.optimize import rosen, rosen_der, rosen_hess_prod
from torch.nn.functional import cross_entropy, huber_loss, mse_loss, poisson_nll_loss

import ksdmin
from tests.nets import tanh_net

CHANGES = [(-60.0, 1.0), (1000.0, 1.0), (0.0, 1e-4), (0.0, 1e4)]
CHANGES_OF_MODELS = [(1000.0, 1.0), (0.0, 1e-4)]
GTOL = 1e-5


def counts(X):
    return torch.poisson(torch.exp(1 + torch.sin(2 * X[:, :1])))


def noisy_curve(X):
    return torch.sin(X[:, :1]) + 0.3 * torch.randn(len(X), 1).double()


def quadrants(X):
    return (X[:, 0] * X[:, 1] > 0).long()


def net(outputs):
    return tanh_net(2, 6, outputs).double()


# model, loss, targets, number of samples
MODELS = {
    "counts": (lambda: net(1), poisson_nll_loss, counts, 120),
    "squares": (lambda: net(1), mse_loss, noisy_curve, 150),
    "classes": (lambda: net(2), cross_entropy, quadrants, 200),
    "samples": (lambda: net(1), huber_loss, noisy_curve, 2000),
    "linear": (lambda: torch.nn.Linear(2, 2).double(), cross_entropy, quadrants, 1500),
}


def of_model(name, constant, scale):
    make, loss, targets, n = MODELS[name]
    torch.manual_seed(0)
    model, X = make(), torch.randn(n, 2).double()

    def changed(outputs, y):
        losses = loss(outputs, y, reduction="none")
        return scale * losses.reshape(len(losses)) + constant

    problem = ksdmin.from_torch(model, changed, (X, targets(X)), l2=1e-3 * scale)
    return ksdmin.minimize(problem, options={"gtol": GTOL * scale, "maxiter": 1000}, rng=0)


def of_function(constant, scale, order=None):
    x0 = np.resize([-1.2, 1.0], 8)
    order = np.arange(8) if order is None else order
    back = np.argsort(order)
    return ksdmin.minimize(
        lambda x: scale * rosen(x[back]) + constant,
        x0[order],
        jac=lambda x: scale * rosen_der(x[back])[order],
        hessp=lambda x, p: scale * rosen_hess_prod(x[back], p[back])[order],
        options={"gtol": GTOL * scale},
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_constant_and_the_scale_of_a_loss(name):
    plain = of_model(name, 0.0, 1.0)
    assert plain.success
    for constant, scale in CHANGES_OF_MODELS:
        res = of_model(name, constant, scale)
        assert res.success, (constant, scale)
        assert 1 / 1.2 <= res.passes / plain.passes <= 1.2, (constant, scale)
        assert set(res.kinds) == set(plain.kinds)


def test_a_constant_and_the_scale_of_a_function():
    plain = of_function(0.0, 1.0)
    assert plain.success
    for constant, scale in CHANGES:
        res = of_function(constant, scale)
        assert res.success, (constant, scale)
        assert 1 / 1.2 <= res.passes / plain.passes <= 1.2, (constant, scale)


def test_the_order_of_the_variables():
    order = np.random.default_rng(0).permutation(8)
    plain, res = of_function(0.0, 1.0), of_function(0.0, 1.0, order)
    assert res.kinds == plain.kinds
    assert res.nfev == plain.nfev
    np.testing.assert_allclose(np.sort(res.x), np.sort(plain.x), atol=1e-6)


def test_the_order_of_the_samples():
    """Where every set is the whole: other samples are drawn otherwise."""
    torch.manual_seed(0)
    X, order = torch.randn(80, 2).double(), torch.randperm(80)
    y, found = noisy_curve(X), []
    for idx in (torch.arange(80), order):
        problem = ksdmin.from_torch(net(1), torch.nn.MSELoss(), (X[idx], y[idx]), l2=1e-3)
        found.append(ksdmin.minimize(problem, options={"gtol": 1e-6}))
    plain, res = found
    assert res.success
    assert set(res.kinds) == set(plain.kinds)
    assert res.fun == pytest.approx(plain.fun, rel=1e-6)
