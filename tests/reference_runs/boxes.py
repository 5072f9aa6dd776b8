"""Bounds: active and not, on one side, met from outside, with all kinds of derivatives."""

import warnings
from functools import partial

import numpy as np
from scipy.optimize import Bounds, rosen, rosen_der, rosen_hess_prod

import ksdmin
from tests.reference_runs.registry import run

X4 = np.array([0.5, 0.6, 0.2, 0.3])
EXACT = {"jac": rosen_der, "hessp": rosen_hess_prod}
ONE_SIDE = Bounds([-np.inf, -np.inf, -np.inf, 0.5], [0.3, np.inf, np.inf, np.inf])

BOXES = {
    "box_active": {"bounds": Bounds(-1.5, 0.8), **EXACT},
    "box_active_jac": {"bounds": Bounds(-1.5, 0.8), "jac": rosen_der},
    "box_active_2_point": {"bounds": Bounds(-1.5, 0.8)},
    "box_inactive": {"bounds": Bounds(-50, 50), **EXACT},
    "box_inactive_3_point": {"bounds": Bounds(-50, 50), "jac": "3-point"},
    "box_one_side": {"x0": [0.3, 0.6, 0.2, 0.5], "bounds": ONE_SIDE, **EXACT},
    "box_pairs": {"bounds": [(None, 0.9), (0.1, None), (None, None), (0.0, 0.4)], **EXACT},
    "box_some_fixed": {
        "x0": [0.3, 0.6, 0.4, 0.3],
        "bounds": Bounds([0.3, -1.0, 0.4, 0.1], [0.3, 1.0, 0.4, 0.5]),
        "jac": rosen_der,
    },
    "box_paper": {"bounds": Bounds(-1.5, 0.8), **EXACT, "options": ksdmin.PAPER | {"maxiter": 30}},
}


def minimize_rosen(x0=X4, **given):
    return ksdmin.minimize(rosen, np.array(x0), **given)


for name, given in BOXES.items():
    run(partial(minimize_rosen, **given), name)


@run
def box_quadratic():
    """Many faces, half of them active."""
    rng = np.random.default_rng(2)
    A, b = rng.standard_normal((60, 40)), rng.standard_normal(40)
    H = A.T @ A / 60 + 0.1 * np.eye(40)
    return ksdmin.minimize(
        lambda x: x @ H @ x / 2 - b @ x,
        np.zeros(40),
        jac=lambda x: H @ x - b,
        hessp=lambda x, p: H @ p,
        bounds=Bounds(-0.5, 0.5),
        options={"gtol": 1e-8},
    )


@run
def box_start_outside():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "x0 lies outside the bounds")
        return minimize_rosen([2.0, -3.0, 0.2, 0.3], bounds=Bounds(-1.5, 0.8), **EXACT)


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
