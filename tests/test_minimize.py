"""`ksdmin.minimize` beyond SciPy's: delegation, problem objects, subsets, draws, history."""

import sys

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod

import ksdmin
from ksdmin import Subsets, minimize

X0 = np.array([-1.2, 1.0, 0.5])
NO_GRADIENT = ["Nelder-Mead", "Powell", "COBYLA", "COBYQA"]
GRADIENT = ["CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP"]
HESSIAN = ["Newton-CG", "trust-constr", "dogleg", "trust-ncg", "trust-exact", "trust-krylov"]
methods = pytest.mark.parametrize("method", NO_GRADIENT + GRADIENT + HESSIAN)


class Bowl:
    """The verbs of a problem, and nothing else."""

    def value(self, x, idx):
        return float((x - 3) @ (x - 3) + (x**4).sum())

    def value_and_gradient(self, x, idx):
        return self.value(x, idx), 2 * (x - 3) + 4 * x**3

    def curvature(self, x, idx):
        return lambda v: 2 * v + 12 * x**2 * v


BOTTOM = 1.0  # of the bowl, in each variable


# --- SciPy's methods ---


@methods
def test_plain_callables_go_to_scipy_as_they_are(method):
    given = {} if method in NO_GRADIENT else {"jac": rosen_der}
    given |= {"hess": rosen_hess} if method in HESSIAN else {}
    res = minimize(rosen, [1.1, 1.3], method=method, **given)
    theirs = scipy.optimize.minimize(rosen, [1.1, 1.3], method=method, **given)
    assert_array_equal(res.x, theirs.x)
    assert (res.nfev, res.message) == (theirs.nfev, theirs.message)


@methods
def test_scipys_methods_see_the_whole_set(method, losses):
    seen = []

    def watched(function):
        def wrapper(*args):
            seen.append(args[-1])
            return function(*args)

        return wrapper

    given = {name: watched(getattr(losses, name)) for name in ("jac", "hess")}
    res = minimize(watched(losses.fun), losses.x0, method=method, subsets=losses.n, **given)
    assert res.success
    assert_allclose(res.x, losses.solution, atol=2e-3)
    assert all(idx == slice(None) for idx in seen)


@methods
def test_scipys_methods_take_problem_objects(method):
    res = minimize(Bowl(), np.zeros(4), method=method)
    assert res.success
    assert_allclose(res.x, BOTTOM, atol=2e-3)


@methods
def test_scipys_methods_take_tensors(method):
    torch = pytest.importorskip("torch")
    bowl, seen = Bowl(), []

    def fun(x):
        seen.append(x)
        return bowl.value(x, None)

    x0 = torch.zeros(4, dtype=torch.float64)
    res = minimize(
        fun,
        x0,
        method=method,
        jac=lambda x: bowl.value_and_gradient(x, None)[1],
        hess=lambda x: 2 * torch.eye(4, dtype=x.dtype) + torch.diag(12 * x**2),
    )
    assert res.success
    assert all(x.dtype == x0.dtype for x in seen)
    assert_allclose(res.x, BOTTOM, atol=2e-3)
    assert x0.tolist() == [0.0] * 4


def test_the_rest_of_the_arguments_go_to_scipy_too(losses):
    calls = []
    res = minimize(
        lambda x, idx, shift: losses.fun(x - shift, idx),
        losses.x0,
        (0.1,),
        "L-BFGS-B",
        lambda x, idx, shift: losses.jac(x - shift, idx),
        bounds=[(None, 1.0)] * 5,
        tol=1e-8,
        callback=lambda xk: calls.append(xk),
        options={"maxiter": 50},
        subsets=losses.n,
    )
    assert res.success
    assert len(calls) == res.nit > 0
    assert res.x.max() == 1.0


def test_names_in_any_case():
    given = {"jac": rosen_der, "hessp": rosen_hess_prod}
    assert_array_equal(minimize(rosen, X0, method="KSD", **given).x, minimize(rosen, X0, **given).x)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kds", r" \(did you mean 'ksd'\?\)"),
        ("KSDD", r" \(did you mean 'ksd'\?\)"),
        ("lbfgs-b", r" \(did you mean 'l-bfgs-b'\?\)"),
        ("nelder_mead", r" \(did you mean 'nelder-mead'\?\)"),
        ("foo", "$"),
    ],
)
def test_an_unknown_method_is_told_what_it_may_mean(name, told):
    with pytest.raises(ValueError, match=f"Unknown solver {name}{told}"):
        minimize(rosen, X0, method=name)


def test_scipys_methods_need_the_name_of_the_whole_set(losses):
    own = lambda iteration, rng: (losses.whole,) * 3  # noqa: E731
    with pytest.raises(ValueError, match=r"whole set.*full="):
        minimize(**losses.given, subsets=own, method="BFGS")
    named = Subsets(own, full=losses.whole)
    assert minimize(**losses.given, subsets=named, method="BFGS").success


def test_what_scipys_methods_have_no_use_for():
    with pytest.raises(ValueError, match="precond= is for methods 'ksd' and 'hf', not 'BFGS'"):
        minimize(rosen, X0, method="BFGS", precond=np.ones(3))
    assert minimize(rosen, X0, method="BFGS", rng=0).nit == minimize(rosen, X0, method="BFGS").nit


# --- Derivatives ---


@pytest.mark.parametrize("jac", [None, False, "3-point", "cs"])
@pytest.mark.parametrize("hess", [None, "3-point", "cs", rosen_hess])
def test_schemes(jac, hess):
    res = minimize(rosen, X0, jac=jac, hess=hess, tol=1e-4)
    assert res.success
    assert_allclose(res.x, 1, atol=1e-3)
    assert (res.nhev > 0) == callable(hess)


def test_differences_search_the_subspace_only():
    # A gradient costs n values; K + 1 slopes are enough to search with.
    n, K = 200, 3
    weight = np.linspace(1, 2, n)
    options = {"krylov_dim": K, "memory": 1, "maxiter": 1}
    res = minimize(lambda x: weight @ x**2, np.ones(n), options=options)
    gradients = 2 + K + 1  # before, after, and one a product
    assert res.nfev < (gradients + 1) * (n + 1)


def both(x):
    return rosen(x), rosen_der(x)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"jac": "4-point"}, ValueError, "jac='4-point': expected a callable, True"),
        ({"hess": "exact"}, ValueError, "hess='exact': expected a callable"),
        ({"hessp": "exact"}, TypeError, "hessp must be callable"),
        ({"jac": [1.0, 2.0, 3.0]}, TypeError, r"jac must be a function, jac\(x, .* not a list"),
        ({"jac": np.ones(3)}, TypeError, r"jac must be a function, jac\(x, .* not a ndarray"),
        ({"hess": np.eye(3)}, TypeError, r"hess must be a function, hess\(x, .* not a ndarray"),
        (
            {"fun": both},
            ValueError,
            r"fun returned a tuple: \(value, gradient\)\? then pass jac=True",
        ),
        ({"fun": 3.0}, TypeError, "fun must be callable or a problem object, not float"),
        ({"fun": rosen, "jac": True}, ValueError, "must return the pair"),
    ],
)
def test_derivatives_that_are_refused(given, error, match):
    with pytest.raises(error, match=match):
        minimize(**{"fun": rosen, "x0": X0} | given)


@pytest.mark.parametrize(
    ("x0", "error", "match"),
    [
        (None, TypeError, "x0 is missing"),
        ([[1.0, 2.0]], ValueError, r"only have one dimension, not shape \(1, 2\).*from_torch"),
        ([], ValueError, "empty"),
        ([1j, 2.0], TypeError, "complex128; expected float32 or float64"),
        (["a", "b"], TypeError, "expected float32 or float64"),
        (np.ones(2, np.float16), TypeError, "float16; expected float32 or float64"),
    ],
)
def test_starts_that_are_refused(x0, error, match):
    with pytest.raises(error, match=match):
        minimize(rosen, x0)


@pytest.mark.parametrize("dtype", [">f8", ">f4", "<f8", ">i4"])
def test_a_start_in_any_byte_order(dtype):
    x0 = np.array([-1, 1, 2], dtype)
    res = minimize(rosen, x0, jac=rosen_der, tol=1e-3)
    assert res.success
    assert res.x.dtype == (np.float32 if dtype == ">f4" else np.float64)
    assert x0.dtype.str == dtype


# --- Preconditioners ---


@pytest.mark.parametrize(
    ("precond", "match"),
    [
        ([1.0, 2.0, -1.0], r"precond must be positive: entry 2 is -1\.0"),
        ([np.nan, 2.0, -1.0], "precond must be positive: entry 0 is nan"),
        ([1.0, np.inf, 2.0], "precond must be finite: entry 1 is inf"),
        ([0.0, 0.0, 0.0], "precond must be positive: all entries are zero"),
        (lambda x: -np.ones(3), r"precond must be positive: entry 0 is -1\.0"),
    ],
)
@pytest.mark.parametrize("method", ["ksd", "hf"])
def test_diagonals_that_are_refused(precond, match, method):
    with pytest.raises(ValueError, match=match):
        minimize(rosen, X0, jac=rosen_der, precond=precond, method=method)


def test_a_diagonal_may_vanish_at_the_solution():
    given = {"jac": lambda x: 4 * x**3, "precond": lambda x: 12 * x**2}
    assert minimize(lambda x: (x**4).sum(), np.zeros(3), **given).success


# --- Problem objects ---


def test_a_problem_is_the_same_as_its_callables(losses):
    given = {"jac": losses.jac, "hessp": losses.hessp, "precond": np.arange(1.0, 6.0)}
    res = minimize(losses.fun, losses.x0, subsets=losses.n, rng=0, **given)
    problem = ksdmin.as_problem(losses.fun, subsets=losses.n, **given)
    for again in (1, 2):  # a problem may be used more than once
        other = minimize(problem, losses.x0, rng=0)
        assert_array_equal(other.x, res.x)
        assert (other.nfev, other.njev, other.nhev) == (res.nfev, res.njev, res.nhev), again


def test_a_problem_brings_x0_and_subsets(losses):
    class Whole(Bowl):
        x0 = np.zeros(4)
        subsets = Subsets(8, curvature=2, search=2)
        seen = ()

        def value(self, x, idx):
            self.seen += (idx,)
            return super().value(x, idx)

    problem = Whole()
    assert minimize(problem, rng=0).success
    assert any(not isinstance(idx, slice) for idx in problem.seen)
    assert minimize(problem, method="BFGS").success
    assert_array_equal(minimize(problem, [5.0, 5.0], options={"maxiter": 0}).x, 5)


@pytest.mark.parametrize("method", ["ksd", "L-BFGS-B"])
@pytest.mark.parametrize(
    "beside",
    [
        {"jac": rosen_der},
        {"hess": rosen_hess},
        {"hessp": rosen_hess_prod},
        {"args": (1,)},
        {"args": np.ones(2)},
        {"precond": np.ones(3)},
    ],
    ids=lambda beside: next(iter(beside)),
)
def test_what_a_problem_brings_is_not_given_beside_it(beside, method):
    (name,) = beside
    for problem in (Bowl(), ksdmin.as_problem(rosen, jac=rosen_der)):
        with pytest.raises(ValueError, match=name):
            minimize(problem, X0, method=method, **beside)


# --- Subsets of one's own ---


def test_an_iterable_gives_one_iteration_a_triple(losses):
    triples = [(losses.whole, np.arange(i, 120, 3), np.arange(i, 120, 2)) for i in range(2)]
    for subsets in (triples, tuple(triples)):
        for _ in range(2):  # a list starts anew
            res = minimize(**losses.exact, subsets=subsets)
            assert (res.status, res.success) == (7, False)
            assert res.message == "The iterable given as subsets has no more sets."
            assert res.nit == len(triples)
            assert res.fun < losses.fun(losses.x0, losses.whole)
    with pytest.raises(ValueError, match="holds no sets"):
        minimize(**losses.exact, subsets=[])


def test_a_set_without_slope_is_passed_over(losses):
    # The first A is flat, and nothing names the whole set: the next A tells where to go.
    def flat_at_first(function):
        return lambda x, idx: 0 * function(x, losses.whole) if idx == "flat" else function(x, idx)

    res = minimize(
        flat_at_first(losses.fun),
        losses.x0,
        jac=flat_at_first(losses.jac),
        subsets=lambda iteration, rng: (losses.whole if iteration else "flat",) * 3,
        options={"maxiter": 15},
    )
    assert (res.status, res.nit) == (1, 15)
    assert_allclose(res.x, losses.solution, atol=1e-2)


@pytest.mark.parametrize("gtol", [1e-5, 30.0])
def test_the_value_after_a_search_is_that_on_the_next_set(losses, gtol):
    # C of one iteration is A of the next: what the search knew there must be f_C itself.
    half, whole = np.arange(60), losses.whole
    res = minimize(
        **losses.exact,
        subsets=Subsets(
            lambda iteration, rng: (whole if iteration else half, half, whole), full=whole
        ),
        options={"return_all": True, "gtol": gtol},
    )
    assert res.success
    assert res.fun == losses.fun(res.x, whole)
    values = [losses.fun(x, whole) for x in res.allvecs[1:]]
    assert_allclose(res.history["value"][1:], values, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_any_number_of_samples_will_do(n, losses):
    def of(function):
        return lambda *args: function(*args[:-1], np.arange(n)[args[-1]])

    functions = {name: of(getattr(losses, name)) for name in ("fun", "jac", "hessp")}
    for options in ({}, ksdmin.PAPER | {"krylov_dim": 1}, ksdmin.PAPER | {"krylov_dim": 2}):
        res = minimize(
            x0=losses.x0, subsets=n, rng=0, options=options | {"maxiter": 3}, **functions
        )
        assert res.fun < losses.fun(losses.x0, np.arange(n))


# --- Draws ---


def draws(losses, rng, options=None):
    """The result, and the sets that the run asked for."""
    seen = []

    def hessp(x, p, idx):
        seen.append(tuple(np.arange(losses.n)[idx]))
        return losses.hessp(x, p, idx)

    subsets = Subsets(losses.n, curvature=0.1, search=0.1)
    given = losses.exact | {"hessp": hessp, "subsets": subsets, "rng": rng}
    return minimize(**given, options={"maxiter": 3} | (options or {})), seen


@pytest.mark.parametrize("options", [{}, ksdmin.PAPER], ids=["default", "PAPER"])
@pytest.mark.parametrize(
    "seed", [lambda s: s, np.random.SeedSequence, np.random.default_rng, np.random.PCG64]
)
def test_draws_repeat_exactly(losses, seed, options):
    (one, sets), (same, same_sets), (other, other_sets) = (
        draws(losses, seed(s), options) for s in (1, 1, 2)
    )
    assert sets == same_sets != other_sets
    assert_array_equal(one.x, same.x)
    assert (one.x != other.x).any()
    columns = [name for name in one.history.columns if name != "seconds"]
    for name in columns:
        assert_array_equal(one.history[name], same.history[name])


# --- History ---


def test_columns(losses):
    res = minimize(**losses.exact, subsets=losses.n, rng=0, options={"return_all": True})
    history = res.history
    assert len(history) == res.nit + 1
    assert_array_equal(history["iteration"], np.arange(res.nit + 1))
    assert_array_equal(history["value"], [losses.fun(x, losses.whole) for x in res.allvecs])
    norms = [np.abs(losses.jac(x, losses.whole)).max() for x in res.allvecs]
    assert_array_equal(history["gradient_norm"], norms)
    steps = np.linalg.norm(np.diff(res.allvecs, axis=0), axis=1)
    assert_allclose(history["step_norm"][1:], steps, rtol=1e-10)
    assert_array_equal(history["accepted"][1:], steps > 0)
    for total in ("nfev", "njev", "nhev", "passes", "seconds"):
        assert (np.diff(history[total]) >= 0).all()
    assert (history["dim"][1:] >= 1).all()
    assert (history["inner_iterations"][1:] >= 1).all()


# --- Progress ---


@pytest.mark.parametrize("method", ["ksd", "hf"])
def test_the_progress_bar(method, capsys):
    pytest.importorskip("tqdm")
    res = minimize(rosen, X0, jac=rosen_der, method=method, options={"progress": True})
    shown = capsys.readouterr().err
    last = res.history[-1].kind.partition("-")[0]
    assert f"{last} {res.nit} it, " in shown
    minimize(rosen, X0, jac=rosen_der)
    assert capsys.readouterr().err == ""


def test_the_progress_bar_needs_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="needs tqdm: pip install tqdm"):
        minimize(rosen, X0, jac=rosen_der, options={"progress": True})


@pytest.mark.parametrize("n", [75, 100])
def test_rosenbrocks_function_ends_in_its_lower_minimum(n):
    x0 = np.tile([-1.2, 1.0], n)[:n]  # the usual start; there is another minimum, of 3.99
    assert minimize(rosen, x0, jac=rosen_der).fun < 1e-6
