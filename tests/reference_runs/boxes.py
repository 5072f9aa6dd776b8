"""Bounds: active ones, variables that are fixed, and samples beside them."""

from functools import partial

import numpy as np
from scipy.optimize import Bounds, rosen, rosen_der

import ksdmin
from tests.reference_runs.registry import run

BOXES = {
    "box_active_jac": ([0.5, 0.6, 0.2, 0.3], Bounds(-1.5, 0.8)),
    "box_some_fixed": (
        [0.3, 0.6, 0.4, 0.3],
        Bounds([0.3, -1.0, 0.4, 0.1], [0.3, 1.0, 0.4, 0.5]),
    ),
}


def minimize_rosen(x0, bounds):
    return ksdmin.minimize(rosen, np.array(x0), jac=rosen_der, bounds=bounds)


for name, given in BOXES.items():
    run(partial(minimize_rosen, *given), name)


@run
def box_sum():
    """Bounds and samples together."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((5000, 6)), rng.standard_normal(5000)
    y += X @ np.array([1.0, -1.0, 0.5, 0.1, 2.0, 0.0])
    return ksdmin.minimize(
        lambda w, idx: float(np.mean((X[idx] @ w - y[idx]) ** 2) / 2),
        np.full(6, 0.1),
        jac=lambda w, idx: (X[idx] @ w - y[idx]) @ X[idx] / len(y[idx]),
        hessp=lambda w, p, idx: (X[idx] @ p) @ X[idx] / len(y[idx]),
        bounds=Bounds(0, 1),
        subsets=5000,
        rng=0,
    )
