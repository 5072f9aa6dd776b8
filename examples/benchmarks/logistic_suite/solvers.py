"""KSD and scikit-learn's solvers, each to the same gradient of the same objective."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import ksdmin
from examples.benchmarks.logistic_suite.objective import Logistic, Softmax

REPEATS = 3
# scikit-learn's solvers stop by tests of their own: their tol falls tenfold until the gradient is
# reached, and only that last fit is timed.
SMALLEST_TOL = 1e-13
MAX_SECONDS = 5  # a solver that takes longer once is not repeated, nor tried with a smaller tol
BY_SKLEARN = ("lbfgs", "newton-cg", "newton-cholesky", "liblinear")

Outcome = dict[str, Any]


def seconds(solve: Callable[[], Any]) -> tuple[float, Any]:
    """The least processor time of some repetitions (others may use the machine), and the result."""
    least, found = np.inf, None
    for _ in range(REPEATS):
        began = time.process_time()
        found = solve()
        least = min(least, time.process_time() - began)
        if least > MAX_SECONDS:
            break
    return least, found


def by_ksd(problem: Logistic | Softmax, gtol: float, without: tuple[str, ...] = ()) -> Outcome:
    """``ksdmin.minimize`` with functions of NumPy."""

    def solve() -> Any:
        return ksdmin.minimize(
            problem.fun,
            np.zeros(problem.n),
            jac=True,
            hess=problem.hess,
            hessp=problem.hessp,
            subsets=len(problem.X),
            rng=0,
            options={"gtol": gtol, "without": without},
        )

    least, res = seconds(solve)
    return _ksd_outcome(problem, least, res, res.x, gtol)


def by_torch(problem: Logistic | Softmax, gtol: float) -> Outcome:
    """``ksdmin.from_torch`` with a Linear layer; making the problem is part of the time."""
    X = torch.tensor(problem.X)
    if isinstance(problem, Logistic):
        y, loss, outputs = torch.tensor(problem.y)[:, None], nn.BCEWithLogitsLoss(), 1
    else:
        y, outputs = torch.tensor(problem.Y.argmax(1)), problem.Y.shape[1]
        loss = nn.CrossEntropyLoss()

    def solve() -> Any:
        model = nn.Linear(X.shape[1], outputs, bias=False, dtype=X.dtype)
        nn.init.zeros_(model.weight)
        made = ksdmin.from_torch(model, loss, (X, y), l2=problem.l2)
        return ksdmin.minimize(made, rng=0, options={"gtol": gtol})

    least, res = seconds(solve)
    return _ksd_outcome(problem, least, res, res.x.numpy(), gtol)


def _ksd_outcome(
    problem: Logistic | Softmax, least: float, res: Any, w: np.ndarray, gtol: float
) -> Outcome:
    gradient = gradient_norm(problem, w)
    # Another order of summation: the gradient at the same point differs in the last digits
    reached = bool(res.success) and gradient <= 1.001 * gtol
    return {
        "seconds": least if reached else np.inf,
        "gradient": gradient,
        "iterations": res.nit,
        "passes": res.passes,
        "matrices": res.nhev,
    }


def by_sklearn(problem: Logistic | Softmax, gtol: float, solver: str) -> Outcome | None:
    """One of the solvers of LogisticRegression; None where it does not apply."""
    if solver == "liblinear" and isinstance(problem, Softmax):
        return None
    y = problem.y if isinstance(problem, Logistic) else problem.Y.argmax(1)
    tol = 10 * gtol
    while tol > SMALLEST_TOL:
        tol /= 10
        model = LogisticRegression(
            C=1 / (len(problem.X) * problem.l2),
            fit_intercept=False,
            solver=solver,
            tol=tol,
            max_iter=100_000,
        )
        began = time.process_time()
        _quiet_fit(model, problem.X, y)
        if gradient_norm(problem, model.coef_.reshape(-1)) <= gtol:
            least, _ = seconds(lambda model=model: _quiet_fit(model, problem.X, y))
            return _sklearn_outcome(problem, least, model)
        if time.process_time() - began > MAX_SECONDS:
            break
    return _sklearn_outcome(problem, np.inf, model)


def _quiet_fit(model: LogisticRegression, X: np.ndarray, y: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tol that cannot be met
        model.fit(X, y)


def _sklearn_outcome(
    problem: Logistic | Softmax, least: float, model: LogisticRegression
) -> Outcome:
    gradient = gradient_norm(problem, model.coef_.reshape(-1))
    return {"seconds": least, "gradient": gradient, "iterations": int(model.n_iter_[0])}


def gradient_norm(problem: Logistic | Softmax, w: np.ndarray) -> float:
    """The largest magnitude in the gradient."""
    return float(np.abs(problem.fun(w, slice(None))[1]).max())
