"""Bounds on the variables: a box, its projection, and which variables are free to move."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, OptimizeWarning

from ksdmin._problem.arrays import EPS, Array, Small, Space, to_host

# Beyond these roundings of its variables, a step has not been meant to end on a bound.
ROUNDINGS = 4


@dataclass(frozen=True)
class Box:
    """lower <= x <= upper, in the space of the run."""

    space: Space
    lower: Array
    upper: Array

    def project(self, x: Array) -> Array:
        """The point of the box that is nearest to `x`."""
        xp = self.space.xp
        return xp.minimum(xp.maximum(x, self.lower), self.upper)

    def landed(self, x: Array, start: Array) -> Array:
        """The nearest point to `x`, where a step from `start` ends.

        A variable that the step leaves within rounding of a bound is put on it. Otherwise it would
        count as free to move, and would have no room to.
        """
        xp, x = self.space.xp, self.project(x)
        rounding = ROUNDINGS * EPS * xp.maximum(abs(x), abs(start))
        x = xp.where((x - self.lower <= rounding) & (x < start), self.lower, x)
        return xp.where((self.upper - x <= rounding) & (x > start), self.upper, x)

    def contains(self, x: Array) -> bool:
        """Whether `x` lies in the box."""
        return bool(self.space.xp.all((x >= self.lower) & (x <= self.upper)))

    def margins(self, reach: float) -> Array:
        """`reach`, or half the distance between a variable's bounds if that is less."""
        half = (self.upper - self.lower) / 2
        return self.space.xp.minimum(half, self.space.xp.full_like(half, reach))

    def within(self, margins: Array) -> Box:
        """The points with these margins from all bounds."""
        return Box(self.space, self.lower + margins, self.upper - margins)

    def held(self, x: Array, g: Array) -> Array:
        """Which variables lie on a bound that the gradient `g` presses them against."""
        return ((x <= self.lower) & (g > 0)) | ((x >= self.upper) & (g < 0))

    def without(self, u: Array, held: Array) -> Array:
        """`u` with zeros where variables are held."""
        return self.space.xp.where(held, self.space.xp.zeros_like(u), u)

    def stationarity(self, x: Array, g: Array) -> float:
        """The most that a step along -g moves a variable; zero at a solution."""
        return self.space.max_abs(x - self.project(x - g))


def as_box(bounds: Any, x0: Array) -> Box | None:
    """What the user gave as ``bounds=``: SciPy's Bounds, or a pair (low, high) per variable."""
    if bounds is None:
        return None
    space = Space(x0)
    lower, upper = as_limits(*_pair(bounds, space.n), space.n)
    if not (np.isfinite(lower) | np.isfinite(upper)).any():
        return None
    return Box(space, space.to_device(lower), space.to_device(upper))


def as_limits(lower: Any, upper: Any, n: int) -> tuple[Small, Small]:
    """The limits of each variable, from arrays or from a number for all."""
    lower, upper = (_of_each(limit, n) for limit in (lower, upper))
    if (lower > upper).any():
        i = int((lower > upper).argmax())
        raise ValueError(
            f"bounds: the lower bound of x[{i}], {lower[i]}, is above its upper one, {upper[i]}"
        )
    return lower, upper


def _pair(bounds: Any, n: int) -> tuple[Any, Any]:
    if isinstance(bounds, Bounds):
        return bounds.lb, bounds.ub
    try:
        pairs = [(low, high) for low, high in bounds]
    except (TypeError, ValueError):
        raise ValueError(
            "bounds: expected scipy.optimize.Bounds or a sequence of pairs (low, high), None for "
            "no bound"
        ) from None
    if len(pairs) != n:
        raise ValueError(f"bounds: {len(pairs)} pairs for {n} variables")
    low = [-np.inf if low is None else low for low, _ in pairs]
    high = [np.inf if high is None else high for _, high in pairs]
    return low, high


def _of_each(limit: Any, n: int) -> Small:
    given = to_host(limit) if hasattr(limit, "shape") else np.asarray(limit, dtype=np.float64)
    try:
        full = np.broadcast_to(given, (n,)).copy()
    except ValueError:
        raise ValueError(f"bounds: {given.shape} limits do not fit {n} variables") from None
    if np.isnan(full).any():
        raise ValueError("bounds: a limit is NaN; None or an infinity stand for no bound")
    return full


def started(box: Box | None, x0: Array, frames: int) -> Array:
    """Where a run in the box starts; a start outside is moved in, with a warning."""
    if box is None:
        return x0
    inside = box.project(x0)
    if box.space.max_abs(inside - x0) > 0:
        warnings.warn(
            "x0 lies outside the bounds: the run starts at the nearest point within",
            OptimizeWarning,
            stacklevel=frames + 1,
        )
    return inside
