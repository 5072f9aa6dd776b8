"""Problems of from_autograd and from_jax in `minimize`."""

import numpy as np
import pytest

import ksdmin
from tests.adapters.functional.backends import autograd_backend


def logistic(backend, dtype="float64"):
    """Convex: one minimum, whatever the way there."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(dtype)
    params = (np.zeros(3, dtype), np.zeros(1, dtype))
    return backend.make(
        lambda p, inputs: inputs @ p[0] + p[1],
        "binary-cross-entropy",
        (X.astype(dtype), y),
        params=params,
        l2=1e-3,
    )


def test_minimize(backend):
    problem = logistic(backend)
    res = ksdmin.minimize(problem, rng=0)
    assert res.success
    assert res.preconditioner == "diagonal"
    assert type(res.x) is type(problem.x0)
    assert res.x.dtype == problem.x0.dtype
    theirs = ksdmin.minimize(problem, method="L-BFGS-B", tol=1e-9)
    assert type(theirs.x) is type(problem.x0)
    np.testing.assert_allclose(res.x, theirs.x, atol=1e-3)
    assert res.fun == pytest.approx(theirs.fun, rel=1e-6)


def test_float32(backend):
    problem, double = logistic(backend, "float32"), logistic(autograd_backend())
    assert problem.traits.noise == 1e-7
    x, v = np.full(4, 0.5), np.arange(4.0)
    single = backend.array(x.astype("float32"))
    for found, expected in zip(
        (*problem.value_and_gradient(single, diagonal=True), problem.hessp(x, v)),
        (*double.value_and_gradient(x, diagonal=True), double.hessp(x, v)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-6)
    _, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    product = problem.curvature(problem.x0)(problem.x0)
    assert {str(u.dtype) for u in (problem.x0, g, D, product)} == {"float32"}
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 1, "krylov_dim": 2})
    assert str(res.x.dtype) == "float32"
    assert res.fun < problem.value(problem.x0)
