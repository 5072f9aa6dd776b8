"""`ksd` as a method of scipy.optimize.minimize, to the whole of SciPy's contract."""

import functools
import warnings

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import (
    BFGS,
    LinearConstraint,
    OptimizeWarning,
    rosen,
    rosen_der,
    rosen_hess,
    rosen_hess_prod,
)
from scipy.sparse import csc_matrix, csr_array
from scipy.sparse.linalg import aslinearoperator

import ksdmin

minimize = functools.partial(scipy.optimize.minimize, method=ksdmin.ksd)
X0 = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
EXACT = {"jac": rosen_der, "hessp": rosen_hess_prod}
presets = pytest.mark.parametrize("preset", [{}, ksdmin.PAPER], ids=["default", "PAPER"])


def bowl(x, centre=0.0, weight=1.0):
    return weight * np.sum((x - centre) ** 2)


def bowl_der(x, centre=0.0, weight=1.0):
    return 2 * weight * (x - centre)


# A sum of losses: least squares over the samples idx, plus an offset from args.
rng = np.random.default_rng(0)
A = rng.standard_normal((60, 4)) * [1, 2, 4, 8]
b = rng.standard_normal(60)


def squares(x, idx, offset=0.0):
    r = A[idx] @ x - b[idx] - offset
    return r @ r / (2 * len(r)), r @ A[idx] / len(r)


# --- The result ---


@presets
def test_the_fields_of_the_result(preset):
    res = minimize(rosen, X0, **EXACT, options=preset)
    types = {"x": np.ndarray, "fun": float, "jac": np.ndarray, "success": bool, "message": str}
    types |= dict.fromkeys(["nit", "nfev", "njev", "nhev", "status"], int)
    assert isinstance(res, scipy.optimize.OptimizeResult)
    assert {name: type(res[name]) for name in types} == types
    assert (res.success, res.status) == (True, 0)
    assert res.message.startswith("Optimization terminated successfully. max |gradient| ")
    assert_allclose(res.x, 1, atol=1e-4)
    assert res.fun == rosen(res.x)
    assert_array_equal(res.jac, rosen_der(res.x))
    assert isinstance(res.history, ksdmin.History)
    assert "allvecs" not in res
    assert "success: True" in repr(res)


# --- Arguments ---


@pytest.mark.parametrize("jac", [True, bowl_der, None, "2-point", "3-point", "cs"])
@pytest.mark.parametrize("args", [(), (3.0,), (3.0, 2.0), 3.0])
def test_jac_and_args(jac, args):
    fun = bowl if jac is not True else lambda *a: (bowl(*a), bowl_der(*a))
    res = minimize(fun, [5.0, -5.0], args, jac=jac)
    assert res.success
    assert_allclose(res.x, 3.0 if args else 0.0, atol=1e-5)


def test_jac_true_with_subsets_is_not_stale():
    """SciPy's cache looks at x alone."""
    x0 = np.ones(4)
    subsets = ksdmin.Subsets(60, curvature=0.25, search=0.25)
    options = {"subsets": subsets, "rng": 0, "krylov_dim": 4, "gtol": 1e-8}
    res = minimize(squares, x0, (0.5,), jac=True, options=options)
    own = {"subsets": subsets, "rng": 0, "options": {"krylov_dim": 4, "gtol": 1e-8}}
    own = ksdmin.minimize(squares, x0, (0.5,), jac=True, **own)
    assert res.success
    assert_allclose(res.x, np.linalg.lstsq(A, b + 0.5)[0], atol=1e-6)
    assert_array_equal(res.x, own.x)
    assert_array_equal(res.history["value"], own.history["value"])


@pytest.mark.parametrize("x0", [2.0, [2.0], np.float32(2.0), 2, np.array([2.0])])
def test_one_unknown(x0):
    given = {
        "jac": lambda x: 4 * (x - 1) ** 3 + 2 * (x - 1),
        "hess": lambda x: 12 * (x - 1) ** 2 + 2,
    }
    res = minimize(lambda x: float((x[0] - 1) ** 4 + (x[0] - 1) ** 2), x0, **given)
    assert res.success
    assert res.x.shape == res.jac.shape == (1,)
    assert_allclose(res.x, 1, atol=1e-4)


HESSIANS = {
    "dense": rosen_hess,
    "rows": lambda x: rosen_hess(x).tolist(),
    "sparse array": lambda x: csr_array(rosen_hess(x)),
    "sparse matrix": lambda x: csc_matrix(rosen_hess(x)),
    "operator": lambda x: aslinearoperator(rosen_hess(x)),
}


@pytest.mark.parametrize("kind", HESSIANS)
def test_kinds_of_hessians(kind):
    res = minimize(rosen, X0, jac=rosen_der, hess=HESSIANS[kind])
    dense = minimize(rosen, X0, jac=rosen_der, hess=rosen_hess)
    assert res.success
    assert 0 < res.nhev <= res.nit
    assert_allclose(res.x, dense.x, atol=1e-6)


def test_a_hessian_update_strategy_is_left_unused():
    with pytest.warns(OptimizeWarning, match=r"hess=BFGS\(\) is not used: ksd has a quasi-Newton"):
        res = minimize(rosen, X0, jac=rosen_der, hess=BFGS())
    assert_array_equal(res.x, minimize(rosen, X0, jac=rosen_der).x)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"constraints": {"type": "eq", "fun": np.sum}}, ["constraints", "SLSQP", "trust-constr"]),
        ({"constraints": [LinearConstraint(np.ones(5), 0, 1)]}, ["constraints", "COBYLA"]),
        ({"constraints": LinearConstraint(np.ones(5), 0, 1)}, ["constraints", "COBYQA"]),
    ],
)
def test_constraints_are_refused(given, names):
    for run in (minimize, ksdmin.minimize):
        with pytest.raises(ValueError, match="cannot handle") as caught:
            run(rosen, X0, **EXACT, **given)
        assert all(name in str(caught.value) for name in names)


# --- Options ---


@pytest.mark.parametrize("options", [{}, {"maxiter": 2}])
def test_disp_prints_a_summary(options, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)  # as SciPy's methods warn of a failure
        res = minimize(rosen, X0, **EXACT, options=options | {"disp": True})
    printed = capsys.readouterr().out
    for line in (
        f"Current function value: {res.fun:f}",
        f"Iterations: {res.nit}",
        f"Function evaluations: {res.nfev}",
        f"Gradient evaluations: {res.njev}",
        f"Hessian evaluations: {res.nhev}",
    ):
        assert line in printed
    assert not res.success or res.message in printed
    minimize(rosen, X0, **EXACT, options=options)
    assert capsys.readouterr().out == ""


# --- Callbacks ---


class Watcher:
    """Notes what a callback is given, and stops the run at a call of its choice."""

    def __init__(self, stop_at=np.inf):
        self.seen, self.stop_at = [], stop_at

    def note(self, x):
        self.seen.append(x.copy())
        x[:] = np.nan  # ours to overwrite
        if len(self.seen) == self.stop_at:
            raise StopIteration("enough")

    def plain(self, xk):
        self.note(xk)

    def keyword(self, intermediate_result):
        assert intermediate_result.fun == rosen(intermediate_result.x)
        assert_array_equal(intermediate_result.jac, rosen_der(intermediate_result.x))
        assert intermediate_result.nit == len(self.seen) + 1
        self.note(intermediate_result.x)


@presets
@pytest.mark.parametrize("signature", ["plain", "keyword"])
def test_the_callback_sees_every_iteration_as_return_all_does(signature, preset):
    watcher, options = Watcher(), preset | {"return_all": True}
    res = minimize(rosen, X0, **EXACT, callback=getattr(watcher, signature), options=options)
    assert res.success
    assert len(res.allvecs) == res.nit + 1
    assert_array_equal(res.allvecs[0], X0)
    assert_array_equal(watcher.seen, res.allvecs[1:])
    assert_array_equal([rosen(x) for x in res.allvecs], res.history["value"])
    arrays = [X0, *res.allvecs, res.x]
    assert not any(np.shares_memory(x, y) for x in arrays for y in arrays if x is not y)
    assert_array_equal(res.x, minimize(rosen, X0, **EXACT, options=preset).x)


def test_stop_iteration_after_a_bad_step():
    # The paper takes every step. Who stops a run has seen where it stands, and gets that point.
    sets = ksdmin.Subsets(60, curvature=2, search=2)
    options = ksdmin.PAPER | {"subsets": sets, "rng": 0, "maxiter": 20, "krylov_dim": 4}
    values = minimize(squares, np.ones(4), jac=True, options=options).history["value"]
    stop_at = int(np.argmax(values > np.minimum.accumulate(values)))
    assert stop_at > 0
    watcher = Watcher(stop_at)
    res = minimize(squares, np.ones(4), jac=True, callback=watcher.plain, options=options)
    assert (res.success, res.status, res.nit) == (False, 99, stop_at)
    assert res.message == "`callback` raised `StopIteration`."
    assert_array_equal(res.x, watcher.seen[-1])
    assert res.fun == values[stop_at]


# --- Whose memory is it? ---


@presets
@pytest.mark.parametrize("names", [["jac", "hessp"], ["jac", "hess"], ["jac"], ["precond"], []])
def test_arrays_may_be_overwritten_and_be_the_same_each_time(names, preset):
    """Those that the user's functions are given, and those that they return."""
    functions = {
        "jac": rosen_der,
        "hessp": rosen_hess_prod,
        "hess": rosen_hess,
        "precond": lambda x: 1 + np.abs(np.diag(rosen_hess(x))),
    }
    buffers = {name: np.empty((5, 5) if name == "hess" else 5) for name in functions}

    def rough(name, function):
        def wrapper(*arrays):
            out = function(*arrays)
            for array in arrays:
                array[:] = np.nan
            if name == "fun":
                return out
            buffers[name][...] = out
            return buffers[name]

        return wrapper

    def run(treat):
        given = {name: treat(name, functions[name]) for name in names}
        precond = given.pop("precond", None)
        options = preset | {"precond": precond, "maxiter": 5}
        return minimize(treat("fun", rosen), X0, **given, options=options)

    res, clean = run(rough), run(lambda name, function: function)
    assert_array_equal(res.x, clean.x)
    assert_array_equal(res.jac, clean.jac)
    assert not np.shares_memory(res.jac, buffers["jac"])
