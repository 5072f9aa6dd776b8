"""The least value of each problem, with a bound on its error, computed once and kept."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

import ksdmin
from examples.benchmarks.regression_suite.linear_model import LinearModel

ROUNDS = 20  # of Newton's method at the end: each adds digits
EXACT = 1e-14  # above the least value: little beside a gap of 1e-9


def optimum(problem: LinearModel) -> dict[str, float]:
    """By ksdmin, then Newton's method.

    The objective is strongly convex: its least value is at most `bound` lower, whatever found x.
    """
    res = ksdmin.minimize(problem, rng=0, options={"gtol": 1e-8, "maxiter": 10_000})
    x = polished(problem, res.x)
    value, g = problem.value_and_gradient(x)
    start = problem.value(problem.x0)
    gradient = float(np.abs(g).max())
    return {"value": value, "start": start, "bound": bound(problem, g), "gradient": gradient}


def bound(problem: LinearModel, g: np.ndarray) -> float:
    """How far above the least value a point with the gradient g can be."""
    return float(g @ g) / (2 * problem.l2)


def polished(problem: LinearModel, x: np.ndarray) -> np.ndarray:
    """Newton steps for as long as they make the gradient smaller."""
    _, g = problem.value_and_gradient(x)
    for _ in range(ROUNDS):
        if bound(problem, g) < EXACT:
            break
        H = LinearOperator((x.size, x.size), matvec=problem.curvature(x), dtype=float)
        d, _ = cg(H, -g, rtol=1e-2, maxiter=5000)
        _, closer = problem.value_and_gradient(x + d)
        if not np.linalg.norm(closer) < np.linalg.norm(g):
            break
        x, g = x + d, closer
    return x
