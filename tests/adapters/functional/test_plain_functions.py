"""Plain functions of the parameters, with and without samples."""

import numpy as np
import pytest

import ksdmin
from tests.adapters.functional.backends import CLOSE, SOME, N, matrix, samples


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2).sum() + 100 * ((x[1:] - x[:-1] ** 2) ** 2).sum()


def test_a_plain_function(backend):
    from scipy.optimize import rosen_der, rosen_hess

    x0 = np.array([-1.2, 1.0, 0.7])
    problem = backend.make(rosenbrock, x0=backend.array(x0), l2=0.5)
    value, g = problem.value_and_gradient(problem.x0)
    assert value == pytest.approx(rosenbrock(x0) + x0 @ x0 / 4)
    np.testing.assert_allclose(g, rosen_der(x0) + x0 / 2, **CLOSE)
    np.testing.assert_allclose(
        matrix(backend, problem), rosen_hess(x0) + np.eye(3) / 2, rtol=1e-10, atol=1e-10
    )
    assert not problem.traits.has_diagonal
    with pytest.raises(ValueError, match="this problem has no diagonal"):
        problem.value_and_gradient(problem.x0, diagonal=True)
    with pytest.raises(ValueError, match="a function of the parameters alone"):
        problem.value(problem.x0, np.array([0]))


@pytest.mark.parametrize("x0", [[-1.2, 1.0, 0.7], (-1, 1.0, np.float64(0.7))])
def test_a_list_of_numbers_is_a_vector(backend, x0):
    problem = backend.make(rosenbrock, x0=x0)
    assert problem.value(problem.x0) == pytest.approx(rosenbrock(np.array(x0)))
    res = ksdmin.minimize(problem)
    np.testing.assert_allclose(problem.unflatten(res.x), np.ones(3), atol=1e-4)


def test_a_list_of_arrays_is_a_tree(backend):
    problem = backend.make(lambda p: (p[0] - p[1].sum()) ** 2, x0=[2.0, backend.array([1.0, 3.0])])
    assert problem.value(problem.x0) == 4.0
    assert len(problem.unflatten(problem.x0)) == 2


def test_a_plain_function_of_samples(backend):
    X, y = samples("squared-error")
    X, y = backend.array(X), backend.array(y)

    def fun(W, idx):
        return ((X[idx] @ W - y[idx]) ** 2).sum(axis=1).mean()

    sets = ksdmin.Subsets(N, 1.0, 1.0, 1.0, disjoint=False)
    problem = backend.make(fun, x0=np.zeros((4, 3)), subsets=sets)
    part, whole = (problem.value_and_gradient(problem.x0, idx) for idx in (SOME, slice(None)))
    np.testing.assert_allclose(part[0], (np.asarray(y)[SOME] ** 2).sum() / len(SOME), **CLOSE)
    np.testing.assert_allclose(whole[0], (np.asarray(y) ** 2).sum() / N, **CLOSE)
    W = np.linalg.lstsq(np.asarray(X), np.asarray(y), rcond=None)[0]
    res = ksdmin.minimize(problem)
    assert res.success
    np.testing.assert_allclose(problem.unflatten(res.x), W, atol=1e-4)


def test_an_error_in_a_function_of_samples_tells_how_it_was_called(backend):
    problem = backend.make(lambda x: (x**2).sum(), x0=np.ones(2), subsets=N)
    with pytest.raises(TypeError) as caught:
        problem.value(problem.x0, SOME)
    assert any("fun(theta, idx)" in note for note in caught.value.__notes__)


def test_more_samples_than_rows():
    X = np.ones((1500, 2))
    problem = ksdmin.from_autograd(lambda x, idx: (X[idx] @ x).mean(), x0=np.ones(2), subsets=3000)
    with pytest.raises(IndexError) as caught:
        ksdmin.minimize(problem, rng=0)
    assert any("(are there so many?)" in note for note in caught.value.__notes__)


def test_sets_that_are_names(backend):
    """A function may take any objects for `idx`."""
    files = {"all": 1.0, "some": 2.0}
    problem = backend.make(
        lambda x, name: (files[name] * (x - 3) ** 2).sum(),
        x0=np.zeros(2),
        subsets=ksdmin.Subsets(lambda iteration, rng: ("all", "some", "some"), full="all"),
    )
    value, g = problem.value_and_gradient(problem.x0, "some")
    assert value == pytest.approx(36)
    np.testing.assert_allclose(g, -12.0)
    np.testing.assert_allclose(problem.curvature(problem.x0, "all")(g), 2 * g)
    res = ksdmin.minimize(problem, options={"maxiter": 1, "krylov_dim": 1})
    assert res.fun < problem.value(problem.x0, "all")


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({}, TypeError, r"x0= is missing: a function without loss and data needs x0"),
        ({"params": [1.0]}, TypeError, r"params= goes with a model with loss and data"),
        ({"x0": [1.0], "chunk_size": 3}, TypeError, r"chunk_size= goes with a model"),
        ({"x0": [1.0], "curvature": "gauss-newton"}, ValueError, r"needs a model with outputs"),
    ],
)
def test_wrong_calls_for_a_plain_function(backend, kwargs, error, message):
    with pytest.raises(error, match=message):
        backend.make(lambda x: x @ x, **kwargs)


def test_returns_that_are_refused(backend):
    given = {
        r"must return a scalar, not a tuple: return the value": lambda x: (x @ x, x),
        r"must return a scalar, not an array of shape \(2,\)": lambda x: x**2,
    }
    for message, fun in given.items():
        problem = backend.make(fun, x0=np.ones(2))
        with pytest.raises((TypeError, ValueError), match=message):
            problem.value(problem.x0)


def test_a_result_is_no_vector(backend):
    problem = backend.make(lambda x: x @ x, x0=np.ones(2))
    with pytest.raises(TypeError, match=r"a vector of 2 numbers, not a Result: pass res[.]x"):
        problem.unflatten(ksdmin.minimize(problem))
