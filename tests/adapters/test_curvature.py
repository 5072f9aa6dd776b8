"""Curvature providers as such: products over jvp and vjp, in any array library."""

import numpy as np
import pytest

from ksdmin._adapters import curvature as _curvature

N, C = 4, 3


def dense_squared(z, y):
    return 2 * np.eye(C)


def dense_softmax(z, y):
    p = np.exp(z) / np.exp(z).sum()
    return np.diag(p) - np.outer(p, p)


def dense_binary(z, y):
    p = 1 / (1 + np.exp(-z))
    return np.diag(p * (1 - p))


def dense_poisson(z, y):
    return np.diag(np.exp(z))


def dense_gaussian(z, y):
    return np.diag(1 / y)


HESSIANS = {
    "squared_error": dense_squared,
    "softmax_cross_entropy": dense_softmax,
    "binary_cross_entropy": dense_binary,
    "poisson": dense_poisson,
    "gaussian": dense_gaussian,
}


def draw():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, C)), rng.uniform(0.5, 2, (N, C)), rng.uniform(0, 2, N), rng


@pytest.mark.parametrize("name", HESSIANS)
def test_closed_forms(backend, name):
    z, y, w, rng = draw()
    u = rng.standard_normal((N, C))
    Z, Y, W, U = (backend.asarray(array) for array in (z, y, w, u))
    times = getattr(_curvature, name)(Z, (Y, Y) if name == "gaussian" else Y, W)
    right = [w[i] * HESSIANS[name](z[i], y[i]) @ u[i] for i in range(N)]
    product = times(U)
    assert backend.holds(product)
    tolerance = 1e-13 if backend.double else 1e-5
    np.testing.assert_allclose(backend.to_numpy(product), right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "binary_cross_entropy"])
def test_large_outputs(backend, name):
    Z = backend.asarray([[1e3, -1e3, 0.0], [0.0, 1e3, 1e3]])
    times = getattr(_curvature, name)(Z, Z, backend.asarray([1.0, 1.0]))
    assert np.isfinite(backend.to_numpy(times(Z / 1e3))).all()


def test_providers(backend):
    """J^T H J and the sum of g g^T, for a linear model with one Jacobian per sample."""
    z, _, w, rng = draw()
    J, v = rng.standard_normal((N, C, 5)), rng.standard_normal(5)
    flat, shape = backend.asarray(J.reshape(N * C, 5)), (N, C)
    transposed = backend.asarray(J.reshape(N * C, 5).T)

    def jvp(v):
        return backend.xp.reshape(flat @ v, shape)

    def vjp(u):
        return transposed @ backend.xp.reshape(u, (N * C,))

    V = backend.asarray(v)
    r, tolerance = backend.asarray(z), 1e-12 if backend.double else 1e-4
    G = sum(J[i].T @ dense_softmax(z[i], None) @ J[i] * w[i] for i in range(N))
    times = _curvature.softmax_cross_entropy(r, r, backend.asarray(w))
    product = _curvature.gauss_newton(jvp, vjp, times)(V)
    np.testing.assert_allclose(backend.to_numpy(product), G @ v, rtol=tolerance, atol=tolerance)
    g = np.einsum("ijk,ij->ik", J, z)
    product = _curvature.fisher(jvp, vjp, r)(V)
    np.testing.assert_allclose(
        backend.to_numpy(product), g.T @ g @ v, rtol=tolerance, atol=tolerance
    )


def test_outputs_that_are_numbers():
    r = np.array([1.0, 2.0])
    assert _curvature.outer_product(r)(np.array([3.0, 1.0])).tolist() == [3.0, 4.0]


def test_names():
    for name in _curvature.PROVIDERS:
        _curvature.check_provider(name)
    _curvature.check_provider(lambda x, idx: None)
    with pytest.raises(ValueError, match="curvature='newton': expected one of 'hessian', 'gauss"):
        _curvature.check_provider("newton")
