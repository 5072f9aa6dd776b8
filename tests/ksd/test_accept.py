"""Whether a step is taken, and what its reduction is compared with."""

from types import SimpleNamespace

import numpy as np
import pytest

from ksdmin._ksd.step import slope_correction
from ksdmin._problem.arrays import Space
from ksdmin._run.evaluator import Evaluated


def test_what_the_step_would_gain_on_other_samples():
    """Of a parabola the slope on them is exact, whatever the gradient said."""
    here = Evaluated(np.zeros(2), "A", 3.0, np.array([-1.0, 0.5]))
    d, own_slope, curvature = np.array([2.0, 1.0]), -0.7, 0.4
    before, after = 9.0, 9.0 + own_slope + curvature / 2
    new_gradient = np.array([own_slope + curvature, 0.0]) / 2
    there = Evaluated(d, "another A", after, new_gradient)
    trial = SimpleNamespace(d=d)
    steeper = slope_correction(Space(d), here, trial, before - after, there)
    assert steeper == pytest.approx(here.gradient @ d - own_slope)
