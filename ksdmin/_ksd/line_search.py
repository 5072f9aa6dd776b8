"""A line search for the weak Wolfe conditions, with few evaluations of a noisy function.

Problem: phi(t) falls at t = 0, and t = 1 should be about right. Each evaluation is a pass over
the data, and phi has rounding noise: values that differ by less than `noise` count as equal.

Algorithm: between a step that is too short and one that is too long, take the minimum of the
parabola through what is known. A step that is too short grows by the secant of the slopes. Where
noise hides the difference of values, slopes decide (the approximate Wolfe test of Hager and
Zhang).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

from ksdmin._problem.arrays import EPS

MARGIN = 10  # times rounding, or an error at its best: a decimal digit, as both are estimates
ARMIJO = 1e-4  # of what the slope predicts: a sufficient decrease
WOLFE = 0.9  # of the slope: at a step that is long enough no more of it is left
MAX_TRIALS = 30  # evaluations in a line search, shifts in the search for a radius
MAX_FACTOR = 10.0  # by which a step is made longer, or shorter at first, at a time
# Failures in a row which show that more of the same is no use: cuts of a step, iterations without
# progress, products without negative curvature, rounds of orthogonalisation. Measured by
# examples/benchmarks/ablation.py, of iterations: none of 90 runs that converge changes by it; on 35
# that run until they stall, 2 saves 9% of the work (and one ended with a gradient 5000 times
# larger), 6 costs 28% more.
PATIENCE = 3


class Valued(Protocol):
    """Where phi has been evaluated."""

    @property
    def value(self) -> float:
        """The value of phi."""


P = TypeVar("P", bound=Valued)


def line_search(
    at: Callable[[float], P],  # evaluates phi(t), t > 0; the first trial is at t = 1
    slope_at: Callable[[P], float],  # at a point of `at`; computed only where it is asked for
    # phi(0), and the slope there, which is negative.
    value: float,
    slope: float,
    *,
    noise: float,  # the absolute rounding error of the values
    lowest: float = -math.inf,  # a value at which the search has fallen far enough
    spent: Callable[[], bool] = lambda: False,  # whether the budget of the run is used up
) -> tuple[P | None, float]:
    """A point that satisfies the weak Wolfe conditions, and its t.

    Where the trials or the budget run out, it is the best one with a sufficient decrease, and None
    where there is none. Not finite counts as too high.
    """
    low, low_value, low_slope = 0.0, value, slope
    high = math.inf
    found: tuple[P | None, float] = None, 0.0
    t, shrunk = 1.0, 0
    for _ in range(MAX_TRIALS):
        if spent():
            break
        point = at(t)
        if point.value <= lowest:  # unbounded, perhaps: see how far it goes
            found = point, t
            if point.value == -math.inf:
                break
            t *= MAX_FACTOR
            continue
        # Low enough means Armijo's test. If noise hides the decrease that it asks for, the value
        # may be higher by the noise, provided that the slope shows the decrease.
        armijo = point.value <= value + ARMIJO * t * slope
        low_enough = armijo or point.value <= value + noise
        new_slope = slope_at(point) if low_enough else math.nan
        rises = not armijo and new_slope > (2 * ARMIJO - 1) * slope
        if not math.isfinite(new_slope) or rises:
            high, shrunk = t, shrunk + 1
            t = shorter(low, low_value, low_slope, high, point.value, shrunk)
            if t * abs(slope) < max(noise, EPS * abs(value)):
                break
        elif new_slope >= WOLFE * slope:
            return point, t
        else:
            last, last_slope = low, low_slope
            low, low_value, low_slope, found = t, point.value, new_slope, (point, t)
            t = between(low, high) if high < math.inf else longer(last, last_slope, low, low_slope)
    return found


def contradicted(t: float, start: Valued, there: Valued, predicted: float, noise: float) -> bool:
    """Whether a first line search failed although its slope predicted much: then slopes are wrong.

    Much means that noise cannot hide even the share of it that Armijo's test asks for. Close to a
    minimum, where values are noise, it can.
    """
    tiny = t <= EPS**0.5
    return tiny and there.value >= start.value and ARMIJO * predicted > noise


def shorter(
    low: float, value: float, slope: float, high: float, high_value: float, shrunk: int
) -> float:
    """A step between low and high: the minimum of the parabola through what is known.

    It is at most the middle, and as short as allowed if the value is not finite. After some
    failures the scale must be wrong by an unknown factor: then each one cuts ten times more than
    the last.
    """
    width = high - low
    curvature = high_value - value - slope * width
    share = 0.5 if curvature <= 0 else -slope * width / (2 * curvature)
    share = min(0.5, max(1 / MAX_FACTOR, share))  # in this order NaN has no effect
    return low + share * min(1.0, MAX_FACTOR ** (PATIENCE - shrunk)) * width


def between(low: float, high: float) -> float:
    """The middle; the geometric mean if the two are far apart."""
    return (low + high) / 2 if high < MAX_FACTOR * low else (low * high) ** 0.5


def longer(last: float, last_slope: float, low: float, low_slope: float) -> float:
    """A step beyond low, where the slope should vanish: at least twice, at most ten times low."""
    curvature = low_slope - last_slope
    step = -low_slope * (low - last) / curvature if curvature > 0 else math.inf
    return min(max(low + step, 2 * low), MAX_FACTOR * low)
