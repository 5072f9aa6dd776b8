"""Derivatives by differences, for callers who give none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ksdmin._arrays import Array, Small, Space

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


def gradient(fun: Function, x: Array, f0: float, scheme: str, space: Space) -> Array:
    """All n slopes: n evaluations of `fun` (2n for "3-point")."""
    relative = space.eps ** STEP_POWER[scheme]
    slopes = np.empty(space.n)
    for i in range(space.n):
        at = float(x[i])
        h = relative * max(1.0, abs(at))
        if scheme != "cs":  # the step that is really taken, after rounding of x + h
            h = float(abs(space.away(np.array(at + h)) - x[i]))
        slopes[i] = slope(fun, x, space.unit(i), h, f0, scheme)
    return space.away(slopes)


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
