"""Sums of losses in numpy: samples of all kinds and sizes, one's own sets, one's own problem."""

from functools import cache, partial
from types import SimpleNamespace

import numpy as np
from scipy.special import expit, log_softmax, softmax

import ksdmin
from ksdmin import Subsets
from tests.reference_runs.registry import run

WHOLE = slice(None)
L2 = 1e-4


# --- The losses ---


@cache
def logistic(m=6000, n=12, spread=30.0, seed=0):
    """Two classes; features whose scales differ by a factor of `spread`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) * np.geomspace(1, spread, n)
    y = np.where(rng.random(m) < expit(X @ rng.standard_normal(n) / spread * 3), 1.0, -1.0)

    def fun(w, idx):
        return float(np.logaddexp(0, -y[idx] * (X[idx] @ w)).mean() + L2 / 2 * w @ w)

    def jac(w, idx):
        return -(y[idx] * expit(-y[idx] * (X[idx] @ w))) @ X[idx] / len(y[idx]) + L2 * w

    def hessp(w, p, idx):
        s = expit(X[idx] @ w)
        return (s * (1 - s) * (X[idx] @ p)) @ X[idx] / len(s) + L2 * p

    return SimpleNamespace(m=m, x0=np.zeros(n), fun=fun, jac=jac, hessp=hessp)


@cache
def softmax_regression(m=5000, n=8, classes=4):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((m, n))
    y = np.argmax(X @ rng.standard_normal((n, classes)) + rng.gumbel(size=(m, classes)), axis=1)
    Y = np.eye(classes)[y]

    def fun(w, idx):
        z = X[idx] @ w.reshape(n, classes)
        return float(-np.mean(np.sum(Y[idx] * log_softmax(z, axis=1), axis=1)) + L2 / 2 * w @ w)

    def jac(w, idx):
        p = softmax(X[idx] @ w.reshape(n, classes), axis=1)
        return (X[idx].T @ (p - Y[idx]) / len(p)).ravel() + L2 * w

    def hessp(w, v, idx):
        p = softmax(X[idx] @ w.reshape(n, classes), axis=1)
        pu = p * (X[idx] @ v.reshape(n, classes))
        return (X[idx].T @ (pu - p * pu.sum(1, keepdims=True)) / len(p)).ravel() + L2 * v

    return SimpleNamespace(m=m, x0=np.zeros(n * classes), fun=fun, jac=jac, hessp=hessp)


@cache
def squares(m=4500, n=30, spread=1e4):
    """Least squares, badly scaled."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((m, n)) * np.geomspace(1, spread, n) ** 0.5
    y = X @ rng.standard_normal(n) + rng.standard_normal(m)
    return SimpleNamespace(
        m=m,
        x0=np.zeros(n),
        fun=lambda w, idx: float(np.mean((X[idx] @ w - y[idx]) ** 2) / 2),
        jac=lambda w, idx: (X[idx] @ w - y[idx]) @ X[idx] / len(y[idx]),
        hessp=lambda w, p, idx: (X[idx] @ p) @ X[idx] / len(y[idx]),
    )


def minimize_sum(losses, subsets=None, hessp=True, wrap=lambda f: f, **given):
    """`wrap` changes how the functions are called."""
    products = {"hessp": wrap(losses.hessp)} if hessp else {}
    return ksdmin.minimize(
        wrap(losses.fun),
        losses.x0,
        jac=wrap(losses.jac),
        subsets=losses.m if subsets is None else subsets,
        rng=0,
        **products,
        **given,
    )


# --- Numbers of samples, sizes of sets ---

SUMS = {
    "logistic": (logistic, {"options": {"gtol": 1e-8}}),
    "logistic_jac": (logistic, {"hessp": False}),
    "logistic_growing": (
        logistic,
        {"subsets": Subsets(6000, 300, 100, 100), "options": {"gtol": 1e-8}},
    ),
    "logistic_many": (partial(logistic, 100_000, 3, 3.0), {}),  # A begins as a part
    "squares": (squares, {}),
    "logistic_paper_part": (
        logistic,
        {"subsets": Subsets(6000, gradient=300), "options": ksdmin.PAPER | {"maxiter": 10}},
    ),
    "softmax_hf": (
        softmax_regression,
        {"method": "hf", "options": {"maxiter": 12, "damping": 1.0, "inner_maxiter": 20}},
    ),
}


def minimize_made(make, given):
    return minimize_sum(make(), **given)


for name, (make, given) in SUMS.items():
    run(partial(minimize_made, make, given), name)


# --- One's own sets ---


@run
def own_sets_run_out_full():
    sets = [(WHOLE, np.arange(i, 6000, 9), np.arange(i + 3, 6000, 9)) for i in range(6)]
    return minimize_sum(logistic(), Subsets(sets, full=WHOLE), options={"gtol": 0.0})


@run
def own_sets_opaque():
    """The sets are names, which only the functions can read."""
    rows = {"all": WHOLE, "left": slice(0, 3000), "right": slice(3000, 6000)}

    def by_name(function):
        return lambda *args: function(*args[:-1], rows[args[-1]])

    sets = Subsets(lambda iteration, rng: ("all", "left", "right"), full="all")
    return minimize_sum(logistic(), sets, wrap=by_name, options={"maxiter": 20})


# --- One's own problem ---


class Logistic:
    """The three verbs, and nothing that is optional but where to start and the samples."""

    def __init__(self, losses, subsets):
        self._losses, self.x0, self.subsets = losses, losses.x0, subsets

    def value(self, x, idx):
        return self._losses.fun(x, idx)

    def value_and_gradient(self, x, idx):
        return self._losses.fun(x, idx), self._losses.jac(x, idx)

    def curvature(self, x, idx):
        return lambda v: self._losses.hessp(x, v, idx)


@run
def own_problem_growing():
    return ksdmin.minimize(Logistic(logistic(), Subsets(6000, 500, 100, 100)), rng=1)
