"""Tests of convergence where a Gauss-Newton step begins: free of units, as those of a fit.

They cost next to nothing beside the step, until one of them seems to hold. Then the model's whole
step is made, without damping, to see whether it predicts any more (``_run/fit_tests.py``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ksdmin._ksd.gauss_newton import GaussNewton
from ksdmin._ksd.state import KSDState
from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import EPS, Array, Space
from ksdmin._run.evaluator import Evaluator
from ksdmin._run.fit_tests import FitTests, Held

# No tolerance is given.
TESTS = FitTests.of(MethodOptions())


class Whole(NamedTuple):
    """What the model's whole step gains, and its length."""

    predicted: float
    length: float


def held_at(space: Space, state: KSDState, equations: GaussNewton, g: Array) -> Held | None:
    """The test that holds at the point of these equations."""
    here, gained = state.here, state.last_decrease
    norm, largest = math.sqrt(2 * max(here.value, 0.0)), equations.largest_term(here.x)
    if not norm:
        return None  # the gradient is zero, too
    if TESTS.is_solved(norm, largest):
        solved = TESTS.of_equations(equations.left(here.x), gained, here.value)
        if solved is not None:
            return solved
    held = TESTS.of_point(equations.cosine(g, norm))
    little, moved = 0 <= gained <= TESTS.ftol * here.value, state.record.step_norm
    if held is None and not little and not 0 < moved <= TESTS.xtol * space.norm(here.x):
        return None
    whole = whole_step(equations, g)
    if whole is None:
        return None
    if held is not None and TESTS.confirmed(whole.predicted, here.value):
        return held
    return TESTS.of_step(
        gained, whole.predicted, here.value, whole.length, equations.length(here.x)
    )


def held_at_the_end(
    evaluator: Evaluator, state: KSDState, equations: GaussNewton, g: Array
) -> Held | None:
    """Where no step lowers the value, whether none was to be expected.

    In float32, where the run can turn to float64, it does that first.
    """
    if evaluator.space.eps > EPS and evaluator.traits.has_finer_arithmetic:
        return None
    value, whole = state.here.value, whole_step(equations, g)
    if whole is None:
        return None
    rounding = EPS * math.sqrt(2 * abs(value)) * equations.largest_term(state.here.x)
    hidden = max(evaluator.noise * abs(value), rounding)
    return TESTS.of_end(whole.predicted, value, hidden)


def whole_step(equations: GaussNewton, g: Array) -> Whole | None:
    """As far as rounding lets one see."""
    damping = EPS * equations.scale
    solve = equations.solver(damping)
    if solve is None:
        return None
    d = solve(equations.residuals)
    slope, length = -float(g @ d), equations.length(d)
    return Whole(max((slope + damping * length**2) / 2, 0.0), length)
