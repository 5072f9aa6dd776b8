"""Which test ended a run: gtol, gtol_rel, ftol or xtol; recomputed here, at res.x."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der
from scipy.special import expit

import ksdmin
from ksdmin import Status
from tests.linear_models import logistic

X0 = np.array([-1.2, 1.0, 0.5])
M, N = 3000, 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)) * np.geomspace(1, 20, N)
Y = np.where(RNG.random(M) < expit(X @ np.ones(N) / 10), 1.0, -1.0)


LOSS = logistic(X, Y, l2=2e-4)
fun, jac = LOSS["fun"], LOSS["jac"]


def norm(g):
    return np.abs(g).max()


def run(**options):
    return ksdmin.minimize(rosen, X0, jac=rosen_der, options=options)


# What ended a run


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        ({}, Status.CONVERGED, ". max |gradient| {norm:.2g} <= gtol 1e-05."),
        (
            {"gtol": 0, "ftol": 1e-3},
            Status.FTOL,
            ", by ftol. The value fell by {fall:.2g} <= ftol 0.001 * max(|f|, 1) in the last "
            "iteration; max |gradient| is {norm:.2g}.",
        ),
        (
            {"gtol": 0, "xtol": 1e-3},
            Status.XTOL,
            ", by xtol. The last step has the length {length:.2g} <= xtol 0.001 * max(1, |x|); "
            "max |gradient| is {norm:.2g}.",
        ),
    ],
)
def test_the_test_that_holds_is_told(options, status, told):
    """That it holds, and held at no earlier iterate, is in test_honesty.py."""
    res = run(**options)
    assert (res.success, res.status) == (True, status)
    numbers = {"norm": norm(rosen_der(res.x)), "fall": res.history[-2].value - res.fun}
    told = told.format(**numbers, length=res.history[-1].step_norm)
    assert res.message == f"Optimization terminated successfully{told}"


def test_the_gradient_goes_first():
    """Where several tests hold, the strongest is named."""
    res = run(ftol=1e6, xtol=1e6, gtol=1e6)
    assert res.status == Status.CONVERGED


def test_with_bounds_the_projected_gradient_is_named():
    res = ksdmin.minimize(rosen, X0, jac=rosen_der, bounds=[(-2, 1)] * 3)
    assert res.success
    assert "max |projected gradient| " in res.message


# gtol_rel


@pytest.mark.parametrize("share", [1e-1, 1e-6])
@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("method", ["ksd", "hf"])
def test_gtol_rel_is_free_of_units(share, scale, method):
    res = ksdmin.minimize(
        lambda x: scale * rosen(x),
        X0,
        jac=lambda x: scale * rosen_der(x),
        method=method,
        options={"gtol": 0, "gtol_rel": share, "maxiter": 2000},
    )
    assert (res.success, res.status) == (True, Status.CONVERGED)
    assert norm(rosen_der(res.x)) <= share * norm(rosen_der(X0)) * (1 + 1e-12)
    norms = res.history["gradient_norm"]
    assert (norms[:-1] > share * norms[0]).all()  # it ends as soon as the test holds
    assert f"<= gtol_rel {share:.2g} * " in res.message


def test_either_of_the_two_is_enough():
    loose = run(gtol=1e-2, gtol_rel=1e-12)
    assert loose.success
    assert "<= gtol 0.01" in loose.message


def test_with_bounds_it_is_the_projected_gradient():
    low, high = np.array([2.0, 0, 0]), np.array([3.0, 5, 30])
    x0 = low  # the largest entry of the gradient is that of x[0], which the bound holds

    def projected(x):
        g = rosen_der(x)
        held = ((x <= low) & (g > 0)) | ((x >= high) & (g < 0))
        return norm(np.where(held, 0, g))

    bounds = list(zip(low, high, strict=True))
    res = ksdmin.minimize(
        rosen, x0, jac=rosen_der, bounds=bounds, options={"gtol": 0, "gtol_rel": 1e-4}
    )
    assert res.success
    assert projected(res.x) <= 1e-4 * projected(x0)
    assert projected(x0) < norm(rosen_der(x0))


@pytest.mark.parametrize("sizes", [{}, {"gradient": 500, "curvature": 100, "search": 100}])
@pytest.mark.parametrize("method", ["ksd", "hf"])
def test_in_a_sum_both_gradients_are_of_all_samples(sizes, method):
    subsets = ksdmin.Subsets(M, **sizes) if method == "ksd" else M
    options = {"gtol": 0, "gtol_rel": 1e-3, "maxiter": 500}
    res = ksdmin.minimize(
        fun, np.ones(N), jac=jac, subsets=subsets, rng=0, method=method, options=options
    )
    assert (res.success, res.status) == (True, Status.CONVERGED)
    assert norm(jac(res.x)) <= 1e-3 * norm(jac(np.ones(N))) * (1 + 1e-9)
    assert f"* {norm(jac(np.ones(N))):.2g} at x0" in res.message


def test_a_mean_over_sparse_data_is_not_left_early():
    """The absolute test holds at once; the relative one asks for what it says."""
    rare = 1.0 * (RNG.random((2000, 200)) < 0.002)
    labels = np.where(RNG.random(2000) < expit(rare @ RNG.standard_normal(200)), 1.0, -1.0)
    loss = logistic(rare, labels, l2=2e-7)
    value, slope = loss["fun"], loss["jac"]
    least = ksdmin.minimize(value, np.zeros(200), jac=slope, options={"gtol": 1e-12}).fun
    early = ksdmin.minimize(value, np.zeros(200), jac=slope)
    late = ksdmin.minimize(value, np.zeros(200), jac=slope, options={"gtol": 0, "gtol_rel": 1e-6})
    assert early.success
    assert late.success
    assert late.fun - least < 1e-9 < early.fun - least


# Saved runs


def test_it_may_be_set_when_a_run_goes_on(tmp_path):
    solver = ksdmin.Solver(rosen, X0, jac=rosen_der)
    next(solver)
    solver.save(tmp_path / "run")
    res = ksdmin.resume(
        tmp_path / "run",
        ksdmin.as_problem(rosen, jac=rosen_der),
        options={"gtol": 0, "gtol_rel": 1e-2},
    )
    assert res.success
    assert norm(rosen_der(res.x)) <= 1e-2 * norm(rosen_der(X0))


def test_not_where_the_first_gradient_was_of_a_part(tmp_path):
    subsets = ksdmin.Subsets(M, gradient=500, curvature=100, search=100)
    problem = ksdmin.as_problem(fun, jac=jac, subsets=subsets)
    solver = ksdmin.Solver(problem, np.ones(N), rng=0)
    next(solver)
    solver.save(tmp_path / "run")
    with pytest.raises(ValueError, match="gtol_rel is relative to the gradient of all samples"):
        ksdmin.resume(tmp_path / "run", problem, options={"gtol_rel": 1e-2})
