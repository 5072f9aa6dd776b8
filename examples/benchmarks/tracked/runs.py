"""Small runs whose evaluations are tracked: each takes some seconds at most, with a fixed seed."""

import numpy as np
from scipy.optimize import rosen, rosen_der, rosen_hess_prod
from scipy.special import expit

import ksdmin


def rosenbrock(method):
    """A curved valley, 100 unknowns, with products."""
    hessp = rosen_hess_prod if method == "ksd" else None
    x0 = np.tile([-1.2, 1.0], 50)
    return ksdmin.minimize(rosen, x0, jac=rosen_der, hessp=hessp, method=method)


def rosenbrock_values_only(method):
    """Ten unknowns of it, gradients by differences."""
    return ksdmin.minimize(rosen, np.tile([-1.2, 1.0], 5), method=method)


def spread_quadratic(method):
    """Curvatures from 1 to 10,000 and a quartic term, 1,000 unknowns, gradients only."""
    d = np.geomspace(1, 1e4, 1000)

    def fun(x):
        return float(d @ (x * x) / 2 + (x**4).sum() / 4 - x.sum())

    return ksdmin.minimize(fun, np.ones(1000), jac=lambda x: d * x + x**3 - 1, method=method)


def logistic_regression(method):
    """20,000 samples, 50 unknowns of spread scales: a sum of losses."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 50)) * np.geomspace(0.03, 3, 50)
    y = np.where(rng.random(20_000) < expit(X @ rng.standard_normal(50)), 1.0, -1.0)

    def fun(w, idx=slice(None)):
        return np.logaddexp(0, -y[idx] * (X[idx] @ w)).mean() + 5e-5 * w @ w

    def jac(w, idx=slice(None)):
        return -(y[idx] * expit(-y[idx] * (X[idx] @ w))) @ X[idx] / len(y[idx]) + 1e-4 * w

    def hessp(w, p, idx=slice(None)):
        s = expit(X[idx] @ w)
        return (s * (1 - s) * (X[idx] @ p)) @ X[idx] / len(s) + 1e-4 * p

    if method != "ksd":
        options = {"gtol": 1e-5, "ftol": 0}
        return ksdmin.minimize(fun, np.zeros(50), jac=jac, method=method, options=options)
    return ksdmin.minimize(fun, np.zeros(50), jac=jac, hessp=hessp, subsets=len(y), rng=0)


def exponential_fit(method):
    """Two decays, 200 residuals, four unknowns: Gauss-Newton."""
    t = np.linspace(0, 4, 200)
    y = 2 * np.exp(-0.5 * t) + np.exp(-3 * t) + 0.01 * np.sin(40 * t)

    def residuals(p):
        return p[0] * np.exp(-p[1] * t) + p[2] * np.exp(-p[3] * t) - y

    def jac(p):
        first, second = np.exp(-p[1] * t), np.exp(-p[3] * t)
        return np.stack([first, -p[0] * t * first, second, -p[2] * t * second], axis=1)

    problem = ksdmin.as_problem(residuals=residuals, jac=jac)
    return ksdmin.minimize(problem, np.array([1.0, 1.0, 1.0, 2.0]), method=method)


RUNS = (rosenbrock, rosenbrock_values_only, spread_quadratic, logistic_regression, exponential_fit)


def passes(res):
    """Values and gradients count one, products two; of sums, a pass is a look at all samples."""
    return res.get("passes", res.nfev + res.get("njev", 0) + 2 * res.get("nhev", 0))
