"""The inner BFGS: few evaluations, and noise that is not fought. (Ends: test_honesty.)"""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ksdmin._ksd.steps.search import bfgs


def minimized(fun, jac, start, noise=0.0):
    """The point found, and all that were evaluated."""
    points = []

    def at(a):
        points.append(SimpleNamespace(a=a, value=float(fun(a)), gradient=jac(a)))
        return points[-1]

    found, _ = bfgs(at, at(start), maxiter=100, noise=noise)
    return found, points


def test_slopes_decide_where_values_cannot():
    """A step that lowers the value by less than its rounding error, up or down."""
    for jitter in (-0.05, 0.0, 0.05):
        found, points = minimized(
            lambda a, up=jitter: 1e6 + (up if a.any() else 0.0),
            lambda a: a - [0.1, 0.2],
            np.zeros(2),
            noise=0.1,
        )
        assert_allclose(found.a, [0.1, 0.2])
        assert len(points) == 2


@pytest.mark.parametrize("seed", range(20))
def test_never_worse_than_the_start_beyond_noise(seed):
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((6, 6))
    H, amplitude = H + H.T, 10.0 ** rng.uniform(-8, -2)

    def fun(a):  # an irregular error, always the same at the same point
        return a @ H @ a / 2 + (a**4).sum() + amplitude * np.sin(1e9 * a.sum())

    start = rng.standard_normal(6)
    found, points = minimized(fun, lambda a: H @ a + 4 * a**3, start, noise=2 * amplitude)
    values = [point.value for point in points]
    assert found.value <= values[0] + 2 * amplitude
    assert found.value <= min(values) + 2 * amplitude
    assert len(points) <= 60


def test_steepest_slope_is_tried_where_what_was_learnt_misleads():
    """After the step to (-1, 0) the only way down is against the gradient there."""

    def fun(a):
        if a[1] == 0:
            return a[0]
        return -2.0 if a[1] == a[0] + 1 < 0 else 1.0

    def jac(a):
        return np.array([1.0, 0.0] if not a.any() else [0.5, 0.5] if a[1] == 0 else [0.0, 0.0])

    found, points = minimized(fun, jac, np.zeros(2))
    assert found.value == -2
    assert len(points) <= 20
