"""The inner BFGS: few variables, a noisy objective, evaluations that cost.

Problem: minimise phi(a) over a in R^m, from a point where phi and its gradient are known, m being
the dimension of the subspace. Each evaluation is a pass over data, and phi carries rounding
noise: values that differ by less than `noise` are equal.

Algorithm: BFGS in float64 from the unit matrix (the co-ordinates are whitened, so that the first
trial is the Newton step of the subspace), with a weak Wolfe line search. It ends when the
gradient has vanished, when the reduction that its model predicts is lost in the noise, when
`enough` says that more would gain too little, or after `maxiter` iterations. A line search never
fights the noise: where values cannot decide, slopes do (the approximate Wolfe test of Hager and
Zhang).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from ksdmin._problem.arrays import Small

EPS = float(np.finfo(np.float64).eps)
ARMIJO = 1e-4
WOLFE = 0.9
GRADIENT_TOL = 1e-8  # relative to the first gradient
MAX_TRIALS = 12  # evaluations in one line search, where the value has to be brought down
SLOW_CUTS = 4  # of which so many before the steps are cut ever faster
MAX_GROWTH = 30  # and where the step is made longer
# Times the noise: a predicted reduction that values must show. A wrong gradient is noticed by that.
MANY_NOISES = 1e4
TINY_STEP = 1e-8  # of the first step


class Point(Protocol):
    """Where phi has been evaluated; the gradient may be computed only when it is looked at."""

    a: Small
    value: float

    @property
    def gradient(self) -> Small:
        """The gradient of phi."""


P = TypeVar("P", bound=Point)


def bfgs(
    at: Callable[[Small], P],
    start: P,
    *,
    maxiter: int,
    noise: float,
    slope_noise: float = 0.0,
    lowest: float = -np.inf,
    enough: Callable[[float, float], bool] = lambda predicted, gained: False,
    spent: Callable[[], bool] = lambda: False,
) -> tuple[P, int]:
    """Minimise within the subspace.

    Parameters
    ----------
    at : callable
        Evaluates phi: ``at(a) -> Point``.
    start : Point
        Where to start, with finite value and gradient.
    maxiter : int
        The largest number of iterations.
    noise : float
        The absolute rounding error of the values.
    slope_noise : float, optional
        The absolute error of the gradient, where it is got by differences.
    lowest : float, optional
        A value at which the search has fallen far enough.
    enough : callable, optional
        ``enough(predicted, gained)``: whether to stop, from the reduction that the model predicts
        for the next iteration and the one gained so far.
    spent : callable, optional
        Whether the budget of the run is used up.

    Returns
    -------
    Point
        The best point found: `start` itself where nothing better was.
    int
        The number of iterations.
    """
    here, inverse, fresh = start, np.eye(len(start.a)), True
    floor = GRADIENT_TOL * float(np.linalg.norm(start.gradient))
    for iteration in range(maxiter):
        g = here.gradient
        p = -(inverse @ g)
        slope = float(g @ p)
        predicted, gained = -slope / 2, start.value - here.value
        size = float(np.linalg.norm(g))
        if size <= floor or (iteration and (predicted <= noise or size <= slope_noise)):
            return here, iteration
        if here.value <= lowest or spent() or enough(predicted, gained):
            return here, iteration
        there = line_search(at, here, p, slope, noise, lowest, spent)
        exact = iteration == 0 and not slope_noise
        if exact and there is not None and contradicted(start, there, predicted, noise):
            return start, 0
        if there is not None:
            if there.value <= lowest:
                return there, iteration + 1
            inverse = update(inverse, there.a - here.a, there.gradient - g)
            here, fresh = there, False
        elif fresh:
            return here, iteration
        else:  # discard the approximation, and try steepest descent once
            inverse, fresh = np.eye(len(g)), True
    return here, maxiter


def contradicted(start: Point, there: Point, predicted: float, noise: float) -> bool:
    """Whether a first line search came to nothing although slopes promised much: they are wrong.

    Close to a minimum, where values are noise, the promise is small.
    """
    tiny = np.linalg.norm(there.a - start.a) <= TINY_STEP * np.linalg.norm(start.gradient)
    return bool(tiny) and there.value >= start.value and predicted > MANY_NOISES * noise


def update(inverse: Small, s: Small, y: Small) -> Small:
    """The BFGS update of the inverse Hessian; none where the curvature along s is not positive."""
    sy = float(s @ y)
    if not sy > 1e-10 * float(np.linalg.norm(s) * np.linalg.norm(y)):
        return inverse
    By = inverse @ y
    sBy = np.outer(s, By)
    return inverse - (sBy + sBy.T) / sy + (1 + float(y @ By) / sy) / sy * np.outer(s, s)


def line_search(
    at: Callable[[Small], P],
    start: P,
    p: Small,
    slope: float,
    noise: float,
    lowest: float = -np.inf,
    spent: Callable[[], bool] = lambda: False,
) -> P | None:
    """A point along p from `start` that satisfies the weak Wolfe conditions.

    `slope` is the (negative) one at `start`. Not finite counts as too high. Returns the best
    sufficient decrease found where the trials or the budget run out, None where there is none.
    """
    low, low_value, low_slope = 0.0, start.value, slope
    high = np.inf
    found: P | None = None
    t, shrunk = 1.0, 0
    for _ in range(MAX_GROWTH):
        if spent():
            break
        point = at(start.a + t * p)
        if point.value <= lowest:  # bottomless: see how far it goes
            found = point
            if point.value == -np.inf:
                break
            t *= 10
            continue
        new_slope = descent(point, start.value, t, slope, noise, p)
        if new_slope is None:
            high, shrunk = t, shrunk + 1
            t = shorter(low, low_value, low_slope, high, point.value, shrunk)
            if shrunk > MAX_TRIALS or t * abs(slope) < max(noise / 10, EPS * abs(start.value)):
                break
        elif new_slope >= WOLFE * slope:
            return point
        else:
            last, last_slope = low, low_slope
            low, low_value, low_slope, found = t, point.value, new_slope, point
            t = between(low, high) if high < np.inf else longer(last, last_slope, low, low_slope)
    return found


def descent(
    point: Point, value: float, t: float, slope: float, noise: float, p: Small
) -> float | None:
    """The slope at `point` if the value there is low enough, None if not (or not finite).

    Low enough is Armijo's test. Where the noise hides the decrease it asks for, the value may be
    up to the noise higher provided that the slope proves the decrease.
    """
    armijo = point.value <= value + ARMIJO * t * slope
    if not armijo and not point.value <= value + noise:
        return None
    new_slope = float(point.gradient @ p)
    if not np.isfinite(new_slope) or (not armijo and new_slope > (2 * ARMIJO - 1) * slope):
        return None
    return new_slope


def shorter(
    low: float, value: float, slope: float, high: float, high_value: float, shrunk: int
) -> float:
    """A step between low and high: where the parabola through what is known has its minimum.

    After some failures the scale must be wrong, by an unknown factor: from then on each one cuts
    ten times more than the last.
    """
    width = high - low
    if not np.isfinite(high_value):
        share = 0.2
    else:
        curvature = high_value - value - slope * width
        share = -slope * width / (2 * curvature) if curvature > 0 else 0.5
    return low + min(max(share, 0.1), 0.5) * min(1.0, 10.0 ** (SLOW_CUTS - shrunk)) * width


def between(low: float, high: float) -> float:
    """The middle, in scale where the two are far apart."""
    return (low + high) / 2 if high < 10 * low else (low * high) ** 0.5


def longer(last: float, last_slope: float, low: float, low_slope: float) -> float:
    """A step beyond low: where the slope should vanish, at least twice and at most ten times."""
    curvature = low_slope - last_slope
    step = -low_slope * (low - last) / curvature if curvature > 0 else np.inf
    return min(max(low + step, 2 * low), 10 * low)
