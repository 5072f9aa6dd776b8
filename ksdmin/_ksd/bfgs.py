"""The inner BFGS: few variables, a noisy objective, evaluations that cost.

Problem: minimise phi(a) over a in R^m, from a point where phi and its gradient are known, m being
the dimension of the subspace. Each evaluation is a pass over data, and phi carries rounding
noise: values that differ by less than `noise` are equal.

Algorithm: BFGS in float64 from the unit matrix (the co-ordinates are whitened, so that the first
trial is the Newton step of the subspace), with a weak Wolfe line search. It ends when the
gradient has vanished, when the reduction that its model predicts is lost in the noise, when
`enough` says that more would gain too little, or after `maxiter` iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from ksdmin._ksd.line_search import EPS, contradicted, line_search
from ksdmin._problem.arrays import Small


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
    dear: Callable[[], bool] | None = None,
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
    dear : callable, optional
        Whether the search has cost so much that it should end once it has found anything.

    Returns
    -------
    Point
        The best point found: `start` itself where nothing better was.
    int
        The number of iterations.
    """
    here, inverse, fresh = start, np.eye(len(start.a)), True
    floor = EPS**0.5 * norm(start.gradient)  # what is left to gain is rounding
    for iteration in range(maxiter):
        g = here.gradient
        p = -inverse.dot(g)
        slope = float(g.dot(p))
        predicted, gained = -slope / 2, start.value - here.value
        size = norm(g)
        if size <= floor or (iteration and (predicted <= noise or size <= slope_noise)):
            return here, iteration
        ended = spent if dear is None or here is start else lambda: spent() or dear()
        if here.value <= lowest or ended() or enough(predicted, gained):
            return here, iteration
        there, t = search_along(at, here, p, slope, noise, lowest, ended)
        exact = iteration == 0 and not slope_noise
        if exact and there is not None and contradicted(t, start, there, predicted, noise):
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


def search_along(
    at: Callable[[Small], P],
    here: P,
    p: Small,
    slope: float,
    noise: float,
    lowest: float,
    spent: Callable[[], bool],
) -> tuple[P | None, float]:
    """A point along p from `here`, and how far; None where there is none that is any better."""
    return line_search(
        lambda t: at(here.a + t * p),
        lambda point: float(point.gradient.dot(p)),
        here.value,
        slope,
        noise=noise,
        lowest=lowest,
        spent=spent,
    )


def update(inverse: Small, s: Small, y: Small) -> Small:
    """The BFGS update of the inverse Hessian; none where the curvature along s is not positive."""
    sy = float(s.dot(y))
    if not sy > EPS * (norm(s) * norm(y)):
        return inverse
    By = inverse.dot(y)
    sBy, ss = s[:, None] * By, s[:, None] * s
    return np.asarray(inverse - (sBy + sBy.T) / sy + (1 + float(y.dot(By)) / sy) / sy * ss)


def norm(u: Small) -> float:
    """The Euclidean norm; numpy's takes ten times as long for a few numbers."""
    return math.sqrt(u.dot(u))
