"""Plain functions: derivatives of all kinds, options, and what goes wrong."""

from functools import partial

import numpy as np
import scipy.optimize
import torch
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod

import ksdmin
from examples.benchmarks.comparison.classic_functions import PROBLEMS
from tests.reference_runs.registry import jax_float32, run

X5 = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
EXACT = {"jac": rosen_der, "hessp": rosen_hess_prod}


# --- Rosenbrock's function, with whatever derivatives are given ---


ROSEN = {
    "rosen_5": EXACT,
    "rosen_jac": {"jac": rosen_der},
    "rosen_2_point": {},
    "rosen_hess": {"jac": rosen_der, "hess": rosen_hess},
    "rosen_float32": {"x0": X5.astype(np.float32), **EXACT, "tol": 1e-3},
    "rosen_paper_changed": {
        "x0": np.full(20, 1.4),
        **EXACT,
        "options": ksdmin.PAPER | {"krylov_dim": 6, "inner_maxiter": 8, "maxiter": 40},
    },
    "rosen_hf": {**EXACT, "method": "hf"},
}


def minimize_rosen(x0=X5, **given):
    return ksdmin.minimize(rosen, x0, **given)


for name, given in ROSEN.items():
    run(partial(minimize_rosen, **given), name)


@run
def rosen_by_scipy():
    return scipy.optimize.minimize(rosen, X5, jac=rosen_der, method=ksdmin.ksd, tol=1e-8)


@run
def rosen_torch():
    def fun(x):
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    return ksdmin.minimize(fun, torch.as_tensor(X5), jac=torch.func.grad(fun))


@run
def quartic_jax():
    with jax_float32():
        import jax.numpy as jnp

        return ksdmin.minimize(
            lambda x: ((x**2 - 1) ** 2).sum() + x[0] * x[1],
            jnp.asarray([0.3, -0.2, 2.0], dtype="float32"),
            jac=lambda x: 4 * x * (x**2 - 1) + jnp.stack([x[1], x[0], 0 * x[0]]),
            tol=1e-3,
        )


# --- Options, on a problem that takes a while ---

OPTIONS = {
    "xtol": {"xtol": 1e-2, "gtol": 0.0},
    "krylov_dim": {"krylov_dim": 4},
    "memory_budget": {"memory_budget": 30 * 8 * 12},
}


def minimize_problem(name, options=None, curvature=True, **sizes):
    problem = PROBLEMS[name](**sizes)
    given = {"hessp": problem.hessp} if curvature else {}
    return ksdmin.minimize(problem.fun, problem.x0, jac=problem.grad, options=options, **given)


for name, options in OPTIONS.items():
    run(partial(minimize_problem, "genrose", options, n=30), f"option_{name}")
run(partial(minimize_problem, "broydn3d", curvature=False, n=300), "broydn3d_jac")


# --- Shapes: quadratics, saddle points, no minimum at all ---

SCALES = np.geomspace(1, 1e4, 20)


def quadratic():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    H, b = (Q * SCALES) @ Q.T, rng.standard_normal(20)
    return ksdmin.minimize(
        lambda x: x @ H @ x / 2 - b @ x,
        np.zeros(20),
        jac=lambda x: H @ x - b,
        hessp=lambda x, p: H @ p,
    )


run(quadratic)


@run
def precond_callable():
    """Badly scaled, so that a diagonal helps."""
    return ksdmin.minimize(
        lambda x: np.sum(SCALES * (x - 1) ** 2) / 2 + np.sum(x**4) / 4 + np.sum(x) ** 2,
        np.zeros(20),
        jac=lambda x: SCALES * (x - 1) + x**3 + 2 * np.sum(x),
        hessp=lambda x, p: (SCALES + 3 * x**2) * p + 2 * np.sum(p),
        precond=lambda x: SCALES + 3 * x**2 + 2,
        options={"pairs": 0},
    )


@run
def saddle_on_the_way():
    return ksdmin.minimize(
        lambda x: float(np.sum((x**2 - 1) ** 2)),
        np.array([3.0, 0.0, -2.0]),
        jac=lambda x: 4 * x * (x**2 - 1),
        hessp=lambda x, p: (12 * x**2 - 4) * p,
    )


@run
def nan_region():
    """The logarithm has no value beyond zero, where the first steps lead."""
    with np.errstate(all="ignore"):
        return ksdmin.minimize(
            lambda x: float(np.sum(x - 0.01 * np.log(x))),
            np.array([1.0, 2.0, 5.0]),
            jac=lambda x: 1 - 0.01 / x,
        )


@run
def noise():
    """Values and gradients are coarse: the run has to see that it gets nowhere."""
    return ksdmin.minimize(
        lambda x: 1 + round(rosen(x) / 1e-7) * 1e-7,
        X5,
        jac=lambda x: rosen_der(x) + 1e-3 * np.cos(1e3 * x),
        options={"gtol": 1e-9},
    )
