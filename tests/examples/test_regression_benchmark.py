"""The convex benchmark's own parts: its problems, their optima, its runs."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import ksdmin
from examples.benchmarks.regression_suite import (
    loss_functions,
    optima,
    ratio_tables,
    solver_runs,
)
from examples.benchmarks.regression_suite.linear_model import LinearModel

CLASSES = {"logistic": 2, "softmax": 3}


def model(kind):
    """60 samples, 5 features: of classes, or with targets around 2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    if kind not in CLASSES:
        return LinearModel(X, rng.poisson(2.0, 60) + 0.5, getattr(loss_functions, kind), 1e-3)
    classes, X = CLASSES[kind], scipy.sparse.csr_array(X * (rng.random((60, 5)) < 0.6))
    labels = rng.integers(0, classes, 60)
    return LinearModel(X, np.where(labels, 1.0, -1.0) if classes == 2 else labels, classes, 1e-3)


@pytest.fixture(params=CLASSES)
def problem(request):
    return model(request.param)


@pytest.mark.parametrize("idx", [slice(None), np.array([1, 5, 17, 30])], ids=["whole", "some"])
@pytest.mark.parametrize("kind", [*CLASSES, "Poisson", "Huber", "LogCosh", "Cauchy"])
def test_derivatives_are_those_of_the_value(kind, idx):
    rng, problem = np.random.default_rng(1), model(kind)
    x, v = 0.3 * rng.standard_normal((2, problem.x0.size))

    def gradient(at):
        return problem.value_and_gradient(at, idx)[1]

    differences = scipy.optimize.approx_fprime(x, lambda at: problem.value(at, idx))
    assert gradient(x) == pytest.approx(differences, abs=1e-5)
    differenced = (gradient(x + 1e-6 * v) - gradient(x - 1e-6 * v)) / 2e-6
    assert problem.curvature(x, idx)(v) == pytest.approx(differenced, abs=1e-6)
    parts = [problem.value(x, np.arange(60)[i::2]) for i in (0, 1)]
    assert np.mean(parts) == pytest.approx(problem.value(x))


def test_optimum_is_a_lower_bound(problem):
    found = optima.optimum(problem)
    res = ksdmin.minimize(problem, rng=1, options={"gtol": 1e-7})
    assert found["bound"] < 1e-12
    assert 0 <= res.fun - found["value"] + 1e-15 < 1e-9


METHODS = "ksd ksd-diagonal ksd-everything L-BFGS-B Newton-CG Newton-CG-sum trust-krylov-sum"


@pytest.mark.parametrize("method", METHODS.split())
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
