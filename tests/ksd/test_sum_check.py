"""A sum in place of a mean over idx is noticed, at no cost; a mean never is."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeWarning

import ksdmin


def run(rows, divisor, kind="squares", seed=0, **given):
    """Three iterations on a regression whose losses are summed and divided by divisor(rows)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 5))
    if kind == "heavy tails":
        X *= np.exp(1.5 * rng.standard_normal((rows, 1)))
    y = X @ np.ones(5) + rng.standard_normal(rows)
    offset = np.mean(y**2) / 2 if kind == "near zero" else 0.0
    calls = []

    def fun(w, idx):
        calls.append(1)
        r = X[idx] @ w - y[idx]
        return float((r * r / 2 - offset).sum()) / divisor(len(r))

    def jac(w, idx):
        r = X[idx] @ w - y[idx]
        return X[idx].T @ r / divisor(len(r))

    options = {"maxiter": 3}
    res = ksdmin.minimize(
        fun, np.zeros(5), jac=jac, subsets=rows, rng=seed, options=options, **given
    )
    assert res.nfev == len(calls)
    return res


@pytest.mark.parametrize("rows", [5000, 60_000])
def test_a_sum_is_noticed(rows):
    with pytest.warns(OptimizeWarning, match=r"must be the mean over idx, not the sum: .* times"):
        run(rows, lambda size: 1)


@pytest.mark.parametrize("kind", ["squares", "heavy tails", "near zero"])
@pytest.mark.parametrize("seed", range(3))
def test_a_mean_is_not(kind, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(5000, lambda size: size, kind, seed)


def test_a_mean_over_one_sample_is_not():
    X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(6, 2)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()).double()
    data = X, X.sin()
    problem = ksdmin.from_torch(net, torch.nn.MSELoss(), data, curvature="hessian", l2=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        res = ksdmin.minimize(problem, rng=0, options={"maxiter": 1})
    assert res.history["size_C"][0] == 1


def test_sums_over_few_samples_are_one_set():
    """There is nothing to compare: all sets are everything."""
    assert run(500, lambda size: 1).nit
