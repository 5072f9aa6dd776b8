"""Plain functions: derivatives of all kinds, options, and what goes wrong."""

import warnings
from functools import partial

import numpy as np
import scipy.optimize
import torch
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

import ksdmin
from tests.problems import PROBLEMS
from tests.reference_runs.registry import jax_float32, run

X5 = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
EXACT = {"jac": rosen_der, "hessp": rosen_hess_prod}


# --- Rosenbrock's function, with whatever derivatives are given ---


def operator(x):
    H = rosen_hess(x)
    return LinearOperator(H.shape, matvec=lambda v: H @ v, dtype=float)


ROSEN = {
    "rosen_2": {"x0": [-1.2, 1.0], **EXACT},
    "rosen_5": EXACT,
    "rosen_50": {"x0": np.resize([-1.2, 1.0], 50), **EXACT},
    "rosen_jac": {"jac": rosen_der},
    "rosen_50_jac": {"x0": np.resize([-1.2, 1.0], 50), "jac": rosen_der},
    "rosen_2_point": {},
    "rosen_3_point": {"jac": "3-point"},
    "rosen_cs": {"jac": "cs"},
    "rosen_2_point_hessp": {"hessp": rosen_hess_prod},
    "rosen_hess": {"jac": rosen_der, "hess": rosen_hess},
    "rosen_hess_sparse": {"jac": rosen_der, "hess": lambda x: csr_array(rosen_hess(x))},
    "rosen_hess_operator": {"jac": rosen_der, "hess": operator},
    "rosen_hess_3_point": {"jac": rosen_der, "hess": "3-point"},
    "rosen_tol": {**EXACT, "tol": 1e-10},
    "rosen_float32": {"x0": X5.astype(np.float32), **EXACT, "tol": 1e-3},
    "rosen_float32_jac": {"x0": X5.astype(np.float32), "jac": rosen_der, "tol": 1e-2},
    "rosen_paper": {**EXACT, "options": ksdmin.PAPER},
    "rosen_paper_changed": {
        "x0": np.full(20, 1.4),
        **EXACT,
        "options": ksdmin.PAPER | {"krylov_dim": 6, "inner_maxiter": 8, "maxiter": 40},
    },
    "rosen_hf": {**EXACT, "method": "hf"},
    "rosen_hf_jac": {"jac": rosen_der, "method": "hf"},
}


def minimize_rosen(x0=X5, **given):
    return ksdmin.minimize(rosen, x0, **given)


for name, given in ROSEN.items():
    run(partial(minimize_rosen, **given), name)


@run
def rosen_jac_true():
    return ksdmin.minimize(lambda x: (rosen(x), rosen_der(x)), X5, jac=True)


@run
def rosen_args():
    def fun(x, a, b):
        return a * rosen(x / b)

    def jac(x, a, b):
        return a / b * rosen_der(x / b)

    return ksdmin.minimize(fun, X5, args=(3.0, 2.0), jac=jac)


@run
def rosen_callback_stops():
    def callback(intermediate_result):
        if intermediate_result.nit == 4:
            raise StopIteration

    return ksdmin.minimize(rosen, X5, **EXACT, callback=callback)


@run
def rosen_by_scipy():
    return scipy.optimize.minimize(rosen, X5, jac=rosen_der, method=ksdmin.ksd, tol=1e-8)


@run
def rosen_by_scipy_jac_true():
    return scipy.optimize.minimize(
        lambda x: (rosen(x), rosen_der(x)), X5, jac=True, method=ksdmin.ksd, options={"pairs": 3}
    )


@run
def rosen_asymmetric_hessp():
    skew = np.triu(np.full((5, 5), 5.0), 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The curvature product is not symmetric")
        return ksdmin.minimize(
            rosen, X5, jac=rosen_der, hessp=lambda x, p: rosen_hess_prod(x, p) + (skew - skew.T) @ p
        )


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
    "maxiter": {"maxiter": 7},
    "maxfun": {"maxfun": 25},
    "ftol": {"ftol": 1e-3, "gtol": 0.0},
    "xtol": {"xtol": 1e-2, "gtol": 0.0},
    "gtol": {"gtol": 1e-9},
    "no_memory": {"memory": 0},
    "memory": {"memory": 4},
    "no_pairs": {"pairs": 0},
    "pairs": {"pairs": 3},
    "krylov_dim": {"krylov_dim": 4},
    "memory_budget": {"memory_budget": 30 * 8 * 12},
    "floor": {"floor": 1e-2},
    "inner_maxiter": {"inner_maxiter": 2},
}


def minimize_problem(name, options=None, curvature=True, **sizes):
    problem = PROBLEMS[name](**sizes)
    given = {"hessp": problem.hessp} if curvature else {}
    return ksdmin.minimize(problem.fun, problem.x0, jac=problem.grad, options=options, **given)


for name, options in OPTIONS.items():
    run(partial(minimize_problem, "genrose", options, n=30), f"option_{name}")
for name in ("watson", "powell_badly_scaled", "brown_dennis", "osborne2", "helical_valley"):
    run(partial(minimize_problem, name), name)
run(partial(minimize_problem, "broydn3d", curvature=False, n=300), "broydn3d_jac")


# --- Shapes: quadratics, saddle points, no minimum at all ---

SCALES = np.geomspace(1, 1e4, 20)


def quadratic(**given):
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    H, b = (Q * SCALES) @ Q.T, rng.standard_normal(20)
    return ksdmin.minimize(
        lambda x: x @ H @ x / 2 - b @ x,
        np.zeros(20),
        jac=lambda x: H @ x - b,
        hessp=lambda x, p: H @ p,
        **given,
    )


run(quadratic)
run(partial(quadratic, options={"pairs": 0, "gtol": 1e-8}), "quadratic_no_pairs")
run(partial(quadratic, method="hf", tol=1e-6, options={"damping": 1.0}), "quadratic_hf_damping")


def scaled_quartic(precond, **options):
    """Badly scaled, so that a diagonal helps."""
    return ksdmin.minimize(
        lambda x: np.sum(SCALES * (x - 1) ** 2) / 2 + np.sum(x**4) / 4 + np.sum(x) ** 2,
        np.zeros(20),
        jac=lambda x: SCALES * (x - 1) + x**3 + 2 * np.sum(x),
        hessp=lambda x, p: (SCALES + 3 * x**2) * p + 2 * np.sum(p),
        precond=precond,
        options={"pairs": 0, **options},
    )


run(partial(scaled_quartic, SCALES), "precond_array")
run(partial(scaled_quartic, lambda x: SCALES + 3 * x**2 + 2), "precond_callable")
run(partial(scaled_quartic, SCALES, diagonal_power=0.5), "precond_diagonal_power")


def double_well(x0, fun=lambda x: float(np.sum((x**2 - 1) ** 2)), **given):
    return ksdmin.minimize(
        fun,
        np.array(x0),
        jac=lambda x: 4 * x * (x**2 - 1),
        hessp=lambda x, p: (12 * x**2 - 4) * p,
        **given,
    )


run(partial(double_well, [1.0, 0.0, 0.0]), "saddle_start")
run(partial(double_well, [3.0, 0.0, -2.0]), "saddle_on_the_way")
run(partial(double_well, [0.1, -0.2, 0.3]), "indefinite")
run(partial(double_well, [0.1, -0.2, 0.3], method="hf"), "indefinite_hf")


@run
def unbounded():
    return ksdmin.minimize(
        lambda x: -(x @ x) / 2 - x[0], np.ones(3), jac=lambda x: -x - np.eye(3)[0]
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
def nan_everywhere():
    return ksdmin.minimize(lambda x: np.nan, np.ones(2), jac=lambda x: np.full(2, np.nan))


@run
def noise():
    """Values and gradients are coarse: the run has to see that it gets nowhere."""
    return ksdmin.minimize(
        lambda x: 1 + round(rosen(x) / 1e-7) * 1e-7,
        X5,
        jac=lambda x: rosen_der(x) + 1e-3 * np.cos(1e3 * x),
        options={"gtol": 1e-9},
    )
