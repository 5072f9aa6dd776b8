"""Derivatives by finite differences, for callers who give none."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.box import Box

# Powers of eps: the relative error of a scheme with exact values, and its best step. A complex
# step has no cancellation: any small one does.
ERROR_POWER = {"2-point": 1 / 2, "3-point": 2 / 3, "cs": 1.0}
STEP_POWER = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}
OF_GRADIENTS = "2-point"  # for products with the Hessian, of a torch model or closure

# A variable whose bounds allow less than this share of a step counts as fixed, and does not
# shorten the step.
LEAST_SHARE = 1e-3

# The factor by which a step without effect grows, and the largest share of the variable.
LONGER, LONGEST = 1e3, 0.1

Function = Callable[[Array], Any]
"""Of a point: a number, or a vector."""

Value = Callable[[], Any]
"""The value at the point where slopes are wanted, which is computed if it is needed."""

Sample = tuple[float, Any]
"""What one variable is, and the value there: a number, or a vector."""


def slope(fun: Function, x: Array, v: Array, h: float, value: Value, scheme: str) -> Any:
    """The derivative of a number or a vector `fun` along `v`, by a difference of step `h`.

    `value` gives the one at x, where it is needed.
    """
    if scheme == "cs":
        return np.imag(fun(x + 1j * h * v)) / h
    if scheme == "3-point":
        return (fun(x + h * v) - fun(x - h * v)) / (2 * h)
    return (fun(x + h * v) - value()) / h


class Axes(NamedTuple):
    """Differences along the axes, none of them with values outside the box."""

    space: Space
    scheme: str
    box: Box | None

    def gradient(self, fun: Function, x: Array, f0: float | None) -> Array:
        """All slopes; `f0` is the value at x, or None: then it is computed if it is needed."""
        value = cache(lambda: fun(x) if f0 is None else f0)
        sizes = np.array([max(1.0, abs(float(x[i]))) for i in range(self.space.n)])
        steps = self.space.eps ** STEP_POWER[self.scheme] * sizes
        return self.space.to_device(self.slopes(fun, x, value, steps))

    def slopes(
        self, fun: Function, x: Array, value: Value, steps: Small, shape: tuple[int, ...] = ()
    ) -> Small:
        """The derivatives of a number or a vector `fun`: one column per axis.

        They take n evaluations, or 2n for "3-point". `value` returns the one at x, where it is
        needed. `steps` has the step along each axis, which may be negative.
        """
        J = np.empty((*shape, self.space.n), order="F")
        for i, h in enumerate(steps.tolist()):
            J[..., i] = self.slope(fun, x, i, h, value)
        return J

    def slope(self, fun: Function, x: Array, i: int, h: float, value: Value) -> Any:
        """The derivative along axis i; 0 if x[i] cannot move.

        Where `fun` is finite on one side of x only, it is the slope there.
        """
        space, scheme, box = self
        if scheme == "cs":
            return slope(fun, x, space.unit(i), h, value, scheme)
        at, low, high = float(x[i]), -np.inf, np.inf
        if box is not None:
            low, high = float(box.lower[i]), float(box.upper[i])

        def sample(end: float) -> Sample:
            point = space.put(space.copy(x), i, min(max(end, low), high))
            return float(point[i]), fun(point)

        def finite(one: Sample) -> bool:
            return bool(np.isfinite(one[1]).all())

        if scheme == "3-point" and low <= at - abs(h) and at + abs(h) <= high:
            above, below = sample(at + h), sample(at - h)
            if finite(above) and finite(below):
                return _secant(above, below)
            low, high = (at, high) if finite(above) else (low, at)  # an edge of where fun is finite
        reach = abs(h) if scheme == "2-point" else 2 * abs(h)
        up = high - at >= min(reach, at - low)  # it fits, or there is no more room below
        up = up and not (h < 0 and at - low >= reach)
        step = min(reach, high - at) if up else -min(reach, at - low)
        if at + step == at:
            return 0.0
        if scheme == "2-point":
            end = sample(at + step)
            if not finite(end) and low <= at - step <= high:
                end = sample(at - step)
            return _secant(end, (at, value()))
        return _parabola((at, value()), sample(at + step / 2), sample(at + step))

    def slope_by_longer_steps(
        self, fun: Function, x: Array, r0: Small, i: int, h: float, longest: float
    ) -> tuple[Small, bool]:
        """The derivatives along axis i if a step h changes nothing, and whether a longer step does.

        Steps grow until rounding does not hide the change; they go both ways, which has less error.
        """
        changed, column, both = False, np.zeros_like(r0), self._replace(scheme="3-point")

        def seen(at: Array) -> Small:
            nonlocal changed
            r: Small = fun(at)
            changed = changed or bool((r != r0).any())
            return r

        while abs(h) < longest and not changed:
            h = math.copysign(min(LONGER * abs(h), longest), h)
            column = both.slope(seen, x, i, h, lambda: r0)
        return column, changed


def _secant(one: Sample, other: Sample) -> Any:
    return (one[1] - other[1]) / (one[0] - other[0])


def _parabola(start: Sample, middle: Sample, end: Sample) -> Any:
    """The slope at `start` of the parabola through three points, or the line through two."""
    if middle[0] in (start[0], end[0]):
        return _secant(end, start)
    near, far = middle[0] - start[0], end[0] - start[0]
    return (far * _secant(middle, start) - near * _secant(end, start)) / (far - near)


def slopes_along(fun: Function, x: Array, V: Array, f0: Any, scheme: str, space: Space) -> Small:
    """The derivatives along the rows of `V` only: as many evaluations as there are rows."""
    h = space.eps ** STEP_POWER[scheme] * max(1.0, space.max_abs(x))
    return np.array([slope(fun, x, V[k, :], h, lambda: f0, scheme) for k in range(V.shape[0])])


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

    If a step would leave the box, it goes the other way. If that leaves it, too, it starts from a
    point that lies one step further inside; all products share the gradient there.
    """
    reach = error ** STEP_POWER[scheme] * max(1.0, space.norm(x))
    either_way = partial(_either_way, grad, x, lambda: g0, scheme, space)
    if box is None:
        return lambda v: either_way(v, reach / (space.norm(v) or 1.0))

    margins = box.margins(reach)

    def times(v: Array) -> Array:
        h = reach / (space.norm(v) or 1.0)
        forth, back = box.contains(x + h * v), box.contains(x - h * v)
        if forth and back:
            return either_way(v, h)
        if scheme != "3-point" and (forth or back):
            return slope(grad, x, v, h if forth else -h, lambda: g0, scheme)
        v, h = _shortened(v, h, margins, space)
        return slope(grad, inner(), v, h, inner_gradient, scheme)

    inner = cache(lambda: box.within(margins).project(x))
    inner_gradient = cache(lambda: grad(inner()))
    return times


def product_of_gradients(problem: Any, x: Array, idx: Any, g0: Array, space: Space) -> Function:
    """Hv of a problem whose gradients are as exact as its vectors."""

    def gradient(at: Array) -> Array:
        g: Array = problem.value_and_gradient(at, idx)[1]
        return g

    return product(gradient, x, g0, OF_GRADIENTS, space.eps, space)


def _either_way(
    grad: Function, x: Array, g0: Value, scheme: str, space: Space, v: Array, h: float
) -> Array:
    """Hv from a step in any direction; from one with a finite gradient, if there is one."""
    Hv = slope(grad, x, v, h, g0, scheme)
    for step in (-h, h):
        if math.isfinite(space.max_abs(Hv)):
            break
        Hv = slope(grad, x, v, step, g0, "2-point")
    return Hv


def _shortened(v: Array, h: float, margins: Array, space: Space) -> tuple[Array, float]:
    """`v` and `h` such that h v stays within the margins: a shorter step.

    Variables that would shorten it too much count as fixed: `v` becomes zero there.
    """
    xp, steps = space.xp, space.xp.abs(h * v)
    movable = margins >= LEAST_SHARE * steps
    none = xp.zeros_like(v)
    ratios = xp.where(movable, steps, none) / xp.where(margins > 0, margins, none + 1)
    return xp.where(movable, v, none), h / max(1.0, space.max_abs(ratios))


# The Hessian at a minimum from values alone: second differences, with n^2 and some 5 n more values.


TRIALS = 8  # most trials of a step along an axis: two are enough for a quadratic function
NEAR = 10.0  # a second difference within this factor of its target is good enough
LARGEST_CHANGE = 1e3  # factor by which a trial changes a step at most
NEGLIGIBLE = 1e-8  # a value at the minimum so much smaller than those around counts as zero
FEW_DIGITS = 3 / 8  # power of eps: values below this share of the noise count as this share
PROBES = 3  # so many values on either side of the point, along a line, show the noise
NOISY = 100.0  # noise above this many roundings of a value makes the steps longer


class Values(NamedTuple):
    """A function, a point, and bounds."""

    fun: Callable[[Small], float]
    x: Small
    low: Small
    high: Small

    def room(self, i: int, h: float) -> float:
        """`h`, or less if the bounds leave no room for it on both sides."""
        return float(min(h, (self.high[i] - self.low[i]) / 2))

    def centre(self, steps: Small) -> Small:
        """The point nearest to x from which no step leaves the box."""
        inner: Small = np.minimum(np.maximum(self.x, self.low + steps), self.high - steps)
        return inner

    def along(self, at: Small, i: int, h: float) -> tuple[float, float]:
        """The values one step above and below `at`."""
        unit = np.eye(1, len(at), i)[0]
        return self.fun(at + h * unit), self.fun(at - h * unit)


def second_differences(
    values: Values, eps: float, tick: Callable[[int], None]
) -> tuple[Small, Small, float]:
    """The Hessian near the point, the gradient there, and the relative error of the diagonal.

    They take n^2 + O(n) values, none of them outside the bounds. Steps make a second difference the
    geometric mean of the value and its noise. Then half of the digits of the values are left, and
    the step is short, in any units of a variable. If a bound is in the way, the centre lies one
    step inside.
    """
    f0 = values.fun(values.x)

    def steps_from(first: Small, noise: float, target: float) -> Small:
        steps = []
        for i, h in enumerate(first.tolist()):
            steps.append(_step(values, i, f0, h, noise, target))
            tick(2)
        return np.array(steps)

    noise = eps * abs(f0)
    first = eps**0.25 * np.where(values.x == 0, 1.0, np.abs(values.x))
    steps = steps_from(first, noise, math.sqrt(noise * abs(f0)))
    measured = _noise(values, steps)
    if measured > NOISY * noise:  # as from an integrator, or from float32
        noise = measured
        target = math.sqrt(noise * max(abs(f0), noise / eps**FEW_DIGITS))
        steps = steps_from(np.maximum(steps, first), noise, target)
    centre = values.centre(steps)
    fc = f0 if (centre == values.x).all() else values.fun(centre)
    above, below = np.array([values.along(centre, i, h) for i, h in enumerate(steps)]).T
    H = _hessian(values, centre, fc, steps, above + below, tick)
    g = (above - below) / (2 * steps) - H @ (centre - values.x)
    least = float(np.abs(np.diag(H) * steps**2).min())
    accuracy = 4 * noise / least if least else 1.0
    return H, g, max(accuracy, eps)


def _step(values: Values, i: int, f0: float, h: float, noise: float, target: float) -> float:
    """The step along axis i whose second difference is near `target`."""
    h = values.room(i, h)
    for _ in range(TRIALS):
        at = values.centre(np.eye(1, len(values.x), i)[0] * h)
        middle = f0 if at[i] == values.x[i] else values.fun(at)
        above, below = values.along(at, i, h)
        found, largest = abs(above + below - 2 * middle), max(abs(above), abs(below))
        # If the value at the minimum is nearly zero, rounding does no harm
        zero = abs(f0) <= NEGLIGIBLE * largest < math.inf
        if target / NEAR <= found and (zero or found <= target * NEAR):
            return h
        known = max(found, NEAR * noise)  # anything less is noise
        factor = math.sqrt(target / known) if math.isfinite(known) else 1 / LARGEST_CHANGE
        longer = values.room(i, h * min(max(factor, 1 / LARGEST_CHANGE), LARGEST_CHANGE))
        if longer == h:
            break
        h = longer
    return h


def _noise(values: Values, steps: Small) -> float:
    """The noise of values, by fourth differences along a line (Hamming's table of differences)."""
    centre, line = values.centre(steps), steps / (PROBES * math.sqrt(len(steps)))
    probes = range(-PROBES, PROBES + 1)
    near = [values.fun(centre + k * line) for k in probes]
    fourth = np.diff(near, 4)
    return float(np.sqrt(np.mean(fourth**2) / math.comb(8, 4)))


def _hessian(
    values: Values, at: Small, f0: float, h: Small, ends: Small, tick: Callable[[int], None]
) -> Small:
    """All second differences: two more values for each pair of variables.

    `ends` has the sums of the values one step h above and below.
    """
    H = np.diag((ends - 2 * f0) / h**2)
    for i in range(len(h)):
        for j in range(i):
            both = np.zeros(len(h))
            both[[i, j]] = h[[i, j]]
            corners = values.fun(at + both) + values.fun(at - both)
            H[i, j] = H[j, i] = (corners - ends[i] - ends[j] + 2 * f0) / (2 * h[i] * h[j])
        tick(2 * i)
    return H


def value_count(n: int) -> int:
    """About how many values that takes, for a progress bar."""
    return n * n + n


# Residuals whose Jacobian has few entries: columns that share no row are differenced at once


class Sparsity:
    """Where a Jacobian may have entries: where a matrix `pattern` of its shape is not zero."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = csc_array(pattern)
        self.shape: tuple[int, int] = self._pattern.shape
        # For each column that of its group: columns of a group share no row.
        self.groups = grouped(self._pattern)

    def jacobian(self, axes: Axes, fun: Function, x: Small, r0: Small, steps: Small) -> csr_array:
        """The derivatives of `fun`, whose value at x is `r0`: as many evaluations as groups.

        With "3-point" differences twice as many. Where a step would leave the box, it is taken the
        other way, or is as long as there is room.
        """
        _, scheme, box = axes
        columns = np.repeat(np.arange(self.shape[1]), np.diff(self._pattern.indptr))
        rows, entries = self._pattern.indices, np.empty(len(columns))
        low, high = (-np.inf, np.inf) if box is None else (box.lower, box.upper)
        up = np.where(x + steps > high, np.maximum(x - np.abs(steps), low), x + steps)
        up = np.where(up < low, np.minimum(x + np.abs(steps), high), up)
        down = np.clip(2 * x - up, low, high)
        for group in range(self.groups.max() + 1):
            own = self.groups == group
            here = own[columns]
            i, j = rows[here], columns[here]
            if scheme == "cs":
                values, ends = np.imag(fun(np.where(own, x + 1j * np.abs(steps), x))), np.abs(steps)
            else:
                values, ends = fun(np.where(own, up, x)) - r0, up - x
            if scheme == "3-point" and (down != x)[own].all():
                values, ends = values + r0 - fun(np.where(own, down, x)), up - down
            entries[here] = values[i] / np.where(ends == 0, 1.0, ends)[j]
        return csr_array((entries, (rows, columns)), shape=self.shape)


def grouped(pattern: csc_array) -> npt.NDArray[np.intp]:
    """A group for each column, the first one whose columns share no row with it.

    Columns with many entries come first (Curtis, Powell and Reid 1974).
    """
    m, n = pattern.shape
    groups = np.zeros(n, dtype=np.intp)
    taken: list[npt.NDArray[np.bool_]] = []  # the rows of each group
    for j in np.argsort(-np.diff(pattern.indptr), kind="stable"):
        rows = pattern.indices[pattern.indptr[j] : pattern.indptr[j + 1]]
        fitting = (group for group, used in enumerate(taken) if not used[rows].any())
        groups[j] = next(fitting, len(taken))
        if groups[j] == len(taken):
            taken.append(np.zeros(m, dtype=bool))
        taken[groups[j]][rows] = True
    return groups


def require_shape(shape: tuple[int, ...], expected: tuple[int, int], what: str) -> None:
    """Refuse a Jacobian, or its pattern, of another shape."""
    if shape != expected:
        raise ValueError(
            f"{what} shape {shape}, expected {expected}: one row per residual, one column per "
            "variable"
        )
