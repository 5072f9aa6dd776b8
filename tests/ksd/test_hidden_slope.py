"""The slope along a step, by the values of its line search."""

import numpy as np
import pytest
from scipy.optimize import rosen

import ksdmin
from ksdmin._ksd.rules.stall import FinerArithmetic
from ksdmin._ksd.steps.quasi_newton import HiddenSlope
from tests.ksd.rules.outcomes import outcome


def parabola(slope, curvature):
    return lambda t: 1.0 - slope * t + curvature / 2 * t * t


def looked_at(phi, slope, *trials, noise=0.0, error=np.inf):
    check = HiddenSlope(phi(0.0), slope, noise, error)
    for t in trials:
        check.note(t, phi(t))
    return check.found


@pytest.mark.parametrize("curvature", [0.1, 1.0, 1e6])
@pytest.mark.parametrize("trials", [(1.0, 0.3), (1.0, 10.0), (1.0, 0.1, 1e-4)])
def test_a_right_slope_is_not_contradicted(curvature, trials):
    assert not looked_at(parabola(2.0, curvature), 2.0, *trials)


@pytest.mark.parametrize("true", [-1.0, 0.0, 0.5, 0.9])
def test_a_slope_that_is_less_than_half_is(true):
    assert looked_at(parabola(true, 1.0), 2.0, 1.0, 0.3)


def test_one_trial_tells_nothing():
    assert not looked_at(parabola(-1.0, 1.0), 2.0, 1.0)


def test_no_more_than_differences_explain():
    """Where the slope is off by more than their error, something else has made it."""
    assert not looked_at(parabola(0.0, 1.0), 2.0, 1.0, 0.3, error=1.0)
    assert looked_at(parabola(0.0, 1.0), 2.0, 1.0, 0.3, error=2.5)


def test_trials_that_rounding_spoils_do_not_count():
    assert not looked_at(parabola(0.0, 1.0), 2.0, 1.0, 0.3, noise=10.0)
    assert looked_at(parabola(0.0, 1.0), 2.0, 1.0, 0.3, 1e-12, noise=1e-6)


def test_values_that_are_not_finite_do_not_count():
    check = HiddenSlope(1.0, 2.0, 0.0, np.inf)
    for t, value in ((10.0, np.inf), (5.0, np.nan), (1.0, 1.5)):
        check.note(t, value)
    assert not check.found


def test_finer_differences_are_due_then():
    told = outcome(gradient_error=1e-9, gradient_norm=1.0, slope_is_hidden=True)
    assert FinerArithmetic().after(told, gtol=1e-5).due
    assert not FinerArithmetic.off().after(told, gtol=1e-5).due


@pytest.mark.parametrize("high", [5.0, 1.0])
def test_no_stall_within_bounds_either(high):
    for x0 in np.random.default_rng(0).uniform(-2, 1, (15, 3)):
        res = ksdmin.minimize(rosen, x0, bounds=[(-5, high)] * 3)
        assert res.success
        value = res.history["value"]
        assert (value[:-1] - value[1:] < 1e-3 * value[:-1]).sum() <= 10
