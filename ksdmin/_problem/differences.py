"""Derivatives by differences, for callers who give none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.box import Box

# Powers of eps: the relative error of what a scheme makes of exact values, and its best step. A
# complex step has no cancellation: any small one does.
ERROR_POWER = {"2-point": 1 / 2, "3-point": 2 / 3, "cs": 1.0}
STEP_POWER = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}

Function = Callable[[Array], float]


def slope(fun: Function, x: Array, v: Array, h: float, f0: float, scheme: str) -> float:
    """The derivative of `fun` at `x` along `v`, by a difference of step `h`."""
    if scheme == "cs":
        return complex(fun(x + 1j * h * v)).imag / h
    if scheme == "3-point":
        return (fun(x + h * v) - fun(x - h * v)) / (2 * h)
    return (fun(x + h * v) - f0) / h


def gradient(
    fun: Function, x: Array, f0: float, scheme: str, space: Space, box: Box | None = None
) -> Array:
    """All n slopes: n evaluations of `fun` (2n for "3-point"), none of them outside the box."""
    relative = space.eps ** STEP_POWER[scheme]
    slopes = np.empty(space.n)
    for i in range(space.n):
        at = float(x[i])
        h = relative * max(1.0, abs(at))
        if scheme == "cs":
            slopes[i] = slope(fun, x, space.unit(i), h, f0, scheme)
            continue
        up, down = _stay(at + h, i, box), _stay(at - h, i, box)
        if scheme == "2-point":
            up, down = (up, at) if up > at else (at, down)
        slopes[i] = _secant(fun, x, i, up, down, f0, space)
    return space.to_device(slopes)


def _stay(at: float, i: int, box: Box | None) -> float:
    return at if box is None else min(max(at, float(box.lower[i])), float(box.upper[i]))


def _secant(
    fun: Function, x: Array, i: int, up: float, down: float, f0: float, space: Space
) -> float:
    """The slope between two values of x[i]; 0 where it cannot move. `f0` is the one at x."""
    e, at = space.unit(i), float(x[i])
    ends = [x if end == at else x + (end - at) * e for end in (up, down)]
    width = float(ends[0][i] - ends[1][i])  # what is left of it after rounding
    if width == 0:
        return 0.0
    high, low = (f0 if end is x else fun(end) for end in ends)
    return (high - low) / width


def slopes_along(fun: Function, x: Array, V: Array, f0: float, scheme: str, space: Space) -> Small:
    """The slopes along the rows of `V` only: as many evaluations as there are rows."""
    h = space.eps ** STEP_POWER[scheme] * max(1.0, space.max_abs(x))
    return np.array([slope(fun, x, V[k, :], h, f0, scheme) for k in range(V.shape[0])])


def product(
    grad: Callable[[Array], Array], x: Array, g0: Array, scheme: str, error: float, space: Space
) -> Callable[[Array], Array]:
    """Hv at `x` from gradients whose relative rounding error is `error`; `g0` is the one at x."""
    reach = error ** STEP_POWER[scheme] * max(1.0, space.norm(x))

    def times(v: Array) -> Array:
        h = reach / (space.norm(v) or 1.0)
        if scheme == "3-point":
            return (grad(x + h * v) - grad(x - h * v)) / (2 * h)
        return (grad(x + h * v) - g0) / h

    return times
