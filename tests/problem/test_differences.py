"""Derivatives by differences: accuracy and cost of each scheme."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ksdmin._problem import differences as _differences
from ksdmin._problem.arrays import Space

EPS = {np.float32: 1.2e-7, np.float64: 2.2e-16}
SCHEMES = ["2-point", "3-point", "cs"]
POWER = {"2-point": 1 / 2, "3-point": 2 / 3, "cs": 1.0}  # of eps: the error to be expected

x = np.array([0.3, -1.2, 2.0, 50.0])
scheme = pytest.mark.parametrize("scheme", SCHEMES)


class Counted:
    """A function of sines, scaled like x; knows its derivatives and counts its calls."""

    scale = np.array([1.0, 1.0, 1.0, 0.02])

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        value = (np.sin(self.scale * x) * [1, 2, 3, 4]).sum()
        return value if np.iscomplexobj(value) else float(value)

    def gradient(self, x):
        return (np.cos(self.scale * x) * self.scale * [1, 2, 3, 4]).astype(x.dtype)

    def hessian(self, x):
        return np.diag(-np.sin(self.scale * x) * self.scale**2 * [1, 2, 3, 4])


@scheme
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradient(scheme, dtype):
    fun, at = Counted(), x.astype(dtype)
    f0 = fun(at)
    g = _differences.gradient(fun, at, f0, scheme, Space(at))
    assert g.dtype == dtype
    assert_allclose(g, fun.gradient(at), rtol=0, atol=30 * EPS[dtype] ** POWER[scheme])
    assert fun.calls - 1 == {"2-point": 4, "3-point": 8, "cs": 4}[scheme]


@pytest.mark.parametrize("scheme", ["2-point", "3-point"])
@pytest.mark.parametrize("length", [1e-6, 1.0, 1e6])
def test_product(scheme, length):
    """Hv to the accuracy of the scheme, however long v is."""
    fun = Counted()
    calls = []

    def grad(at):
        calls.append(at)
        return fun.gradient(at)

    times = _differences.product(grad, x, fun.gradient(x), scheme, EPS[np.float64], Space(x))
    v = np.array([1.0, -1.0, 0.5, 2.0])
    error = (times(length * v) / length - fun.hessian(x) @ v) / np.linalg.norm(x)
    assert np.abs(error).max() < 30 * EPS[np.float64] ** POWER[scheme]
    assert len(calls) == {"2-point": 1, "3-point": 2}[scheme]


@pytest.mark.parametrize(("scheme", "tolerance"), [("2-point", 2.5e-3), ("3-point", 2.5e-4)])
def test_product_from_inexact_gradients(scheme, tolerance):
    """The error of the gradients sets the step: with a shorter or longer one more would be lost."""

    def grad(at):
        return np.exp(at) + 1e-6 * np.sin(1e9 * at)

    at = np.array([0.1, -0.2, 0.3, 0.4])
    times = _differences.product(grad, at, grad(at), scheme, 1e-6, Space(at))
    errors = [np.abs(times(v) - np.exp(at) * v).max() for v in np.eye(4)]
    assert max(errors) < tolerance
