"""The convex benchmark's own parts: its problems, its counts, its files and its tables."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import ksdmin
from examples.benchmarks.regression_suite import (
    kept_runs,
    loss_functions,
    loss_sets,
    loss_tables,
    optima,
    ratio_tables,
    solver_runs,
    synthetic_data,
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


def test_halves_of_the_loss_sets_share_no_set_and_have_every_kind():
    tuning, aside = (loss_sets.names(half) for half in loss_sets.HALVES)
    assert not set(tuning) & set(aside)
    assert sorted(tuning + aside) == sorted(loss_sets.SETS)
    for kind in loss_sets.KINDS:
        halves = [loss_sets.names(half, kind) for half in loss_sets.HALVES]
        assert len(halves[0]) == len(halves[1]) >= 2


@pytest.mark.parametrize("name", ["fungi", "diagnoses"])
def test_sets_that_are_called_separable_are(name):
    X, labels, _ = loss_sets.load(name)
    res = ksdmin.minimize(LinearModel(X, labels, 2, 1e-6), rng=0, options={"gtol": 1e-4})
    assert (labels * (X @ res.x)).min() > 0


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


def test_mean_of_parts_is_the_whole(problem):
    x = np.random.default_rng(1).standard_normal(problem.x0.size)
    parts = [problem.value_and_gradient(x, np.arange(60)[i::2])[1] for i in (0, 1)]
    assert np.mean(parts, axis=0) == pytest.approx(problem.value_and_gradient(x)[1])


def test_what_is_known_at_a_point_is_not_counted_again(problem):
    counts = SimpleNamespace(nfev=0, njev=0, nhev=0)
    copied = problem.counting(counts)
    x = problem.x0 + 1
    copied.value(x)
    copied.value_and_gradient(x.copy())
    copied.value_and_gradient(x)
    assert (counts.nfev, counts.njev, counts.nhev) == (1, 1, 0)
    x += 1  # the same array, another point
    copied.value(x)
    assert counts.nfev == 2


def test_large_scores_do_not_overflow(problem):
    with np.errstate(all="raise", under="ignore"):
        value, g = problem.value_and_gradient(problem.x0 + 1e4)
    assert np.isfinite(value)
    assert np.isfinite(g).all()


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


@pytest.mark.parametrize("method", ["ksd-paper", "Newton-CG"])
def test_run_ends_when_its_passes_are_used_up(problem, method):
    optimum = optima.optimum(problem)
    run = solver_runs.run(method, problem, optimum, seed=0, cap=9)
    assert not run["success"]
    assert run["passes"] <= (11 if method == "Newton-CG" else 40)  # an iteration is finished


def test_runs_of_ksdmin_are_repeated_when_it_has_changed():
    current = kept_runs.is_current
    assert current({"commit": "1"}, True, "1")
    assert not current({"commit": "1"}, True, "2")
    assert not current({"commit": "1-dirty"}, True, "1-dirty")
    assert current({"commit": "1"}, False, "2")
    assert not current(None, False, "2")


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


def test_report_of_the_losses_has_both_halves(tmp_path):
    for name, ours in (("fungi", 50), ("households", 10)):
        of_set = {"data": name, "l2": 1e-6}
        kept_runs.runs_of("ksd", tmp_path).add(kept_run(ours, **of_set, seed=0))
        kept_runs.runs_of("L-BFGS-B", tmp_path).add(kept_run(100, **of_set))
    report = loss_tables.report(tmp_path, tmp_path, [1e-6])
    assert "| tuning, one-hot | 0.50 | 0.50 | 0.50 | 0.50 | 1 |" in report
    assert "| **set-aside, all** | 0.10 | 0.10 | 0.10 | 0.10 | 1 |" in report
    assert "| households 1e-06 | 10 | 100 | 10 | 100 | 0.10 |" in report


def test_synthetic_sets_are_what_they_say():
    X, labels, _ = synthetic_data.zipf(documents=50, words=80)
    assert np.sqrt(X.multiply(X).sum(axis=1)) == pytest.approx(1)
    assert set(labels) == {-1, 1}
    X, _, _ = synthetic_data.decades(samples=500, features=20)
    singular = np.linalg.svd(X, compute_uv=False)
    assert 3e3 < singular[0] / singular[-1] < 3e4
