"""The convex benchmark's own parts: its problems, its counts, its files and its tables."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import ksdmin
from examples.benchmarks.regression_suite import (
    kept_runs,
    loss_functions,
    optima,
    ratio_tables,
    solver_runs,
)
from examples.benchmarks.regression_suite.linear_model import LinearModel


@pytest.fixture(params=[2, 3], ids=["logistic", "softmax"])
def problem(request):
    """60 samples, 5 features."""
    rng, classes = np.random.default_rng(0), request.param
    X = scipy.sparse.csr_array(rng.standard_normal((60, 5)) * (rng.random((60, 5)) < 0.6))
    labels = rng.integers(0, classes, 60)
    labels = np.where(labels, 1.0, -1.0) if classes == 2 else labels
    return LinearModel(X, labels, classes, 1e-3)


@pytest.fixture(params=["Poisson", "Huber", "LogCosh", "Cauchy"])
def regression(request):
    """60 samples, 5 features, targets around 2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    return LinearModel(X, rng.poisson(2.0, 60) + 0.5, getattr(loss_functions, request.param), 1e-3)


def test_derivatives_of_other_losses(regression):
    rng = np.random.default_rng(1)
    x, v = 0.3 * rng.standard_normal((2, 5))
    value, g = regression.value_and_gradient(x)
    assert g == pytest.approx(scipy.optimize.approx_fprime(x, regression.value), abs=1e-5)
    ahead, behind = (regression.value_and_gradient(x + h * v)[1] for h in (1e-7, -1e-7))
    assert regression.curvature(x)(v) == pytest.approx((ahead - behind) / 2e-7, abs=1e-6)
    parts = [regression.value(x, np.arange(60)[i::2]) for i in (0, 1)]
    assert np.mean(parts) == pytest.approx(value)


@pytest.mark.parametrize("idx", [slice(None), np.array([1, 5, 17, 30])], ids=["whole", "some"])
def test_derivatives_are_those_of_the_value(problem, idx):
    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((2, problem.x0.size))
    copied = problem.counting(problem.counts)

    def value(at):
        return copied.value(at, idx)

    def gradient(at):
        return copied.value_and_gradient(at, idx)[1]

    assert gradient(x) == pytest.approx(scipy.optimize.approx_fprime(x, value), abs=1e-6)
    differenced = (gradient(x + 1e-6 * v) - gradient(x - 1e-6 * v)) / 2e-6
    assert problem.curvature(x, idx)(v) == pytest.approx(differenced, abs=1e-8)


def test_diagonal_is_that_of_the_products(problem):
    x = np.random.default_rng(1).standard_normal(problem.x0.size)
    _, _, diagonal = problem.value_and_gradient(x, diagonal=True)
    product = problem.curvature(x)
    assert diagonal == pytest.approx([product(e)[i] for i, e in enumerate(np.eye(x.size))])


def test_optimum_is_a_lower_bound(problem):
    found = optima.optimum(problem)
    res = ksdmin.minimize(problem, rng=1, options={"gtol": 1e-7})
    assert found["bound"] < 1e-12
    assert 0 <= res.fun - found["value"] + 1e-15 < 1e-9


@pytest.mark.parametrize(
    "method",
    [
        "ksd",
        "ksd-diagonal",
        "ksd-everything",
        "L-BFGS-B",
        "Newton-CG",
        "Newton-CG-sum",
        "trust-krylov-sum",
    ],
)
def test_run_arrives_at_every_gap(problem, method):
    optimum = optima.optimum(problem)
    run = solver_runs.run(method, problem, optimum, seed=0)
    assert run["success"]
    assert run["gap"] <= 1e-9
    passes = [run["reached"][gap]["passes"] for gap in ratio_tables.GAPS]
    assert passes == sorted(passes)
    assert 0 < passes[-1] <= run["passes"]
    if method == "ksd":
        assert run["A"] + run["B"] + run["C"] == pytest.approx(run["passes"], abs=0.2)
        assert min(run["A"], run["B"], run["C"]) >= 0


def kept_run(passes, **more):
    """A run on a9a that reached 1e-3 and 1e-6 with `passes` and 1e-9 with twice as many."""
    costs = {"1e-03": passes, "1e-06": passes, "1e-09": 2 * passes}
    spent = {"A": 1.0, "B": 2.0, "C": 3.0, "nit": 4}
    reached = {
        gap: {"passes": cost, "seconds": cost, "processor": cost, **spent}
        for gap, cost in costs.items()
    }
    run = {
        "data": "a9a",
        "l2": 1e-4,
        "seed": None,
        "reached": reached,
        "passes": 2 * passes,
        "success": True,
        **spent,
    }
    return run | {"date": "today", "commit": "1", "hardware": "none"} | more


def test_report_takes_the_worst_seed_and_the_better_scale(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_runs, "RESULTS", tmp_path)
    runs = {
        "ksd": [kept_run(10, seed=0), kept_run(20, seed=1)],
        "L-BFGS-B": [kept_run(200)],
        "Newton-CG": [kept_run(100)],
        "Newton-CG-sum": [kept_run(25)],
        "trust-krylov": [kept_run(9, reached={}, message="it gave up")],
    }
    for method, kept in runs.items():
        kept_runs.runs_of(method, tmp_path).add(*kept)
    report = ratio_tables.report(tmp_path, ["a9a"], [1e-4])
    assert "- HOLDS: median passes / L-BFGS-B's 0.10, at most 0.20 asked" in report
    assert "- FAILS: worst passes / Newton-CG's 0.80, at most 0.50 asked" in report
    assert "- HOLDS: worst passes / trust-krylov's 0.00, at most 0.50 asked" in report
    assert "test is met in 2 of 2 runs" in report
    assert "| a9a 1e-04 | 4 | 1 | 2 | 3 |" in report
