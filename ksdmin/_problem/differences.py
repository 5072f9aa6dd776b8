"""Derivatives by differences, for callers who give none."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.box import Box

# Powers of eps: the relative error of what a scheme makes of exact values, and its best step. A
# complex step has no cancellation: any small one does.
ERROR_POWER = {"2-point": 1 / 2, "3-point": 2 / 3, "cs": 1.0}
STEP_POWER = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}

# A variable whose bounds leave it less than this share of a step does not shorten the step: it
# counts as fixed.
LEAST_SHARE = 1e-3

# By how much a step grows that changes nothing, and up to which share of the variable.
LONGER, LONGEST = 1e3, 0.1

Function = Callable[[Array], float]

Sample = tuple[float, Any]
"""What one variable is, and the value there: a number, or a vector."""


def slope(fun: Function, x: Array, v: Array, h: float, f0: float, scheme: str) -> float:
    """The derivative of `fun` at `x` along `v`, by a difference of step `h`."""
    if scheme == "cs":
        return complex(fun(x + 1j * h * v)).imag / h
    if scheme == "3-point":
        return (fun(x + h * v) - fun(x - h * v)) / (2 * h)
    return (fun(x + h * v) - f0) / h


def gradient(
    fun: Function, x: Array, f0: float | None, scheme: str, space: Space, box: Box | None = None
) -> Array:
    """All n slopes: n evaluations of `fun` (2n for "3-point"), none of them outside the box.

    `f0` is the value at x; None where it is not known: where it is needed, it is one more.
    """
    slopes, relative = np.empty(space.n), space.eps ** STEP_POWER[scheme]
    value = cache(lambda: fun(x) if f0 is None else f0)
    for i in range(space.n):
        h = relative * max(1.0, abs(float(x[i])))
        if scheme == "cs":
            slopes[i] = slope(fun, x, space.unit(i), h, 0.0, scheme)
        else:
            slopes[i] = _partial(fun, x, i, h, value, scheme, space, box)
    return space.to_device(slopes)


def jacobian(
    fun: Callable[[Array], Small],
    x: Array,
    r0: Small,
    scheme: str,
    steps: Small,
    space: Space,
    box: Box | None,
) -> Small:
    """The derivatives of a vector `fun`, whose value at x is `r0`: one column per axis.

    As many evaluations as for a gradient, none of them outside the box. `steps` has the length of
    that along each axis, and is negative where it goes down.
    """
    J = np.empty((r0.shape[0], space.n), dtype=r0.dtype)
    for i in range(space.n):
        h = float(steps[i])
        if scheme == "cs":
            J[:, i] = vector_slope(fun, x, space.unit(i), h, r0, scheme)
        else:
            J[:, i] = _partial(fun, x, i, h, lambda: r0, scheme, space, box)
    return J


def slope_by_longer_steps(
    fun: Callable[[Array], Small],
    x: Array,
    r0: Small,
    i: int,
    h: float,
    longest: float,
    space: Space,
    box: Box | None,
) -> tuple[Small, bool]:
    """The derivatives along axis i, along which a step h changes nothing, and whether one does.

    Steps grow until rounding does not hide the change; they go both ways, as that has less error.
    """
    changed, column = False, np.zeros_like(r0)

    def seen(at: Array) -> Small:
        nonlocal changed
        r = fun(at)
        changed = changed or bool((r != r0).any())
        return r

    while abs(h) < longest and not changed:
        h = math.copysign(min(LONGER * abs(h), longest), h)
        column = _partial(seen, x, i, h, lambda: r0, "3-point", space, box)
    return column, changed


def _partial(
    fun: Callable[[Array], Any],
    x: Array,
    i: int,
    h: float,
    value: Callable[[], Any],
    scheme: str,
    space: Space,
    box: Box | None,
) -> Any:
    """The slope along axis i; 0 where x[i] cannot move. `value` gives the one at x."""
    at, low, high = float(x[i]), -np.inf, np.inf
    if box is not None:
        low, high = float(box.lower[i]), float(box.upper[i])

    def sample(end: float) -> Sample:
        point = space.put(space.copy(x), i, min(max(end, low), high))
        return float(point[i]), fun(point)

    if scheme == "3-point" and low <= at - abs(h) and at + abs(h) <= high:
        return _secant(sample(at + h), sample(at - h))
    reach = abs(h) if scheme == "2-point" else 2 * abs(h)
    up = high - at >= min(reach, at - low)  # it fits, or there is no more room below
    up = up and not (h < 0 and at - low >= reach)
    step = min(reach, high - at) if up else -min(reach, at - low)
    if at + step == at:
        return 0.0
    if scheme == "2-point":
        return _secant(sample(at + step), (at, value()))
    return _parabola((at, value()), sample(at + step / 2), sample(at + step))


def _secant(one: Sample, other: Sample) -> Any:
    return (one[1] - other[1]) / (one[0] - other[0])


def _parabola(start: Sample, middle: Sample, end: Sample) -> Any:
    """The slope at `start` of the parabola through all three; of a line, where two are the same."""
    if middle[0] in (start[0], end[0]):
        return _secant(end, start)
    near, far = middle[0] - start[0], end[0] - start[0]
    return (far * _secant(middle, start) - near * _secant(end, start)) / (far - near)


def relative_steps(x: Small, scheme: str, eps: float, least: Small | None = None) -> Small:
    """The best step along each axis, relative to the variable itself: units change nothing.

    Away from zero, as MINPACK and SciPy have it; values are known to `eps`. A variable that tends
    to zero counts as `least` at least: its own size would make of differences rounding alone.
    """
    sizes = np.where(x == 0, 1.0, x)
    if least is not None:
        sizes = np.where(np.abs(x) < least, np.copysign(least, x), sizes)
    steps = eps ** STEP_POWER[scheme] * sizes
    return np.asarray(np.abs(steps) if scheme == "cs" else steps)


def slopes_along(fun: Function, x: Array, V: Array, f0: float, scheme: str, space: Space) -> Small:
    """The slopes along the rows of `V` only: as many evaluations as there are rows."""
    h = space.eps ** STEP_POWER[scheme] * max(1.0, space.max_abs(x))
    return np.array([slope(fun, x, V[k, :], h, f0, scheme) for k in range(V.shape[0])])


def vector_slopes_along(
    fun: Callable[[Array], Small], x: Array, V: Array, r0: Small, scheme: str, space: Space
) -> Small:
    """The derivatives of a vector `fun` along the rows of `V`, one row each."""
    h = space.eps ** STEP_POWER[scheme] * max(1.0, space.max_abs(x))
    return np.array([vector_slope(fun, x, V[k, :], h, r0, scheme) for k in range(V.shape[0])])


def vector_slope(
    fun: Callable[[Array], Small], x: Array, v: Array, h: float, r0: Small, scheme: str
) -> Small:
    """The derivative of a vector `fun` along `v`."""
    if scheme == "cs":
        return np.imag(fun(x + 1j * h * v)) / h
    if scheme == "3-point":
        return (fun(x + h * v) - fun(x - h * v)) / (2 * h)
    return (fun(x + h * v) - r0) / h


def product(
    grad: Callable[[Array], Array],
    x: Array,
    g0: Array,
    scheme: str,
    error: float,
    space: Space,
    box: Box | None = None,
) -> Callable[[Array], Array]:
    """Hv at `x` from gradients whose relative rounding error is `error`; `g0` is the one at x.

    Where a step would leave the box, it is taken the other way; where that would too, from a
    point that lies further inside by the length of a step: all products share its gradient.
    """
    reach = error ** STEP_POWER[scheme] * max(1.0, space.norm(x))

    def times(v: Array) -> Array:
        h = reach / (space.norm(v) or 1.0)
        if box is None:
            return _quotient(grad, x, lambda: g0, v, h, scheme)
        forth, back = box.contains(x + h * v), box.contains(x - h * v)
        if (forth and back) if scheme == "3-point" else (forth or back):
            return _quotient(grad, x, lambda: g0, v, h if forth else -h, scheme)
        v, h = _shortened(v, h, box.margins(reach), space)
        return _quotient(grad, inner(), inner_gradient, v, h, scheme)

    inner = cache(lambda: x if box is None else box.inner(x, reach))
    inner_gradient = cache(lambda: grad(inner()))
    return times


def _quotient(
    grad: Callable[[Array], Array],
    x: Array,
    g0: Callable[[], Array],
    v: Array,
    h: float,
    scheme: str,
) -> Array:
    if scheme == "3-point":
        return (grad(x + h * v) - grad(x - h * v)) / (2 * h)
    return (grad(x + h * v) - g0()) / h


def _shortened(v: Array, h: float, margins: Array, space: Space) -> tuple[Array, float]:
    """`v` and `h` such that h v stays within the margins: a shorter step.

    Variables that would shorten it too much are as good as fixed: `v` becomes zero there.
    """
    xp, steps = space.xp, space.xp.abs(h * v)
    movable = margins >= LEAST_SHARE * steps
    none = xp.zeros_like(v)
    ratios = xp.where(movable, steps, none) / xp.where(margins > 0, margins, none + 1)
    return xp.where(movable, v, none), h / max(1.0, space.max_abs(ratios))
