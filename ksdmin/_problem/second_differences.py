"""The Hessian at a minimum from values alone: second differences, n^2 values and some 5 n more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.box import Box

TRIALS = 8  # of a step along an axis, at most: two are enough for a quadratic function
NEAR = 10.0  # a second difference within this factor of what is wanted will do
LONGEST = 1e3  # factor by which a trial changes a step at most
NEGLIGIBLE = 1e-8  # a value at the minimum that is so much less than those around it is zero
FEW_DIGITS = 3 / 8  # power of eps: the share of noise that values smaller than it are taken as
PROBES = 3  # values on either side of the point, along one line, show the noise
NOISY = 100.0  # times the rounding of a value: noise above that makes the steps longer


class Curvature(NamedTuple):
    """The Hessian and the gradient in the free variables, from values.

    Attributes
    ----------
    H, g : arrays
        The Hessian, near `x`, and the gradient at `x`.
    accuracy : float
        The relative error of a diagonal entry by the noise of values.
    """

    H: Small
    g: Small
    accuracy: float


class Lines(NamedTuple):
    """Steps along the free axes, and the values at both ends of each."""

    steps: Small
    above: Small
    below: Small


class Values:
    """Values of a function around a point, in the free variables and within the box."""

    def __init__(
        self,
        fun: Callable[[Array], float],
        x: Array,
        space: Space,
        free: npt.NDArray[np.int64],
        box: Box | None,
    ) -> None:
        self._fun, self._space, self._free, self._x = fun, space, free, to_host(x)
        self.x, self.n = self._x[free], len(free)
        self.low, self.high = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        if box is not None:
            self.low, self.high = to_host(box.lower)[free], to_host(box.upper)[free]

    def __call__(self, z: Small) -> float:
        """The value where the free variables are `z`."""
        point = self._x.copy()
        point[self._free] = z
        return self._fun(self._space.to_device(point))

    def room(self, i: int, h: float) -> float:
        """`h`, or less where the bounds of a variable leave no room for it to both sides."""
        return float(min(h, (self.high[i] - self.low[i]) / 2))

    def centre(self, steps: Small) -> Small:
        """The point nearest to x from which no step leaves the box."""
        inner: Small = np.minimum(np.maximum(self.x, self.low + steps), self.high - steps)
        return inner

    def along(self, at: Small, i: int, h: float) -> tuple[float, float]:
        """The values a step above and below `at`."""
        unit = np.eye(1, self.n, i)[0]
        return self(at + h * unit), self(at - h * unit)


def second_differences(
    fun: Callable[[Array], float],
    x: Array,
    space: Space,
    free: npt.NDArray[np.int64],
    box: Box | None,
    tick: Callable[[int], None],
) -> Curvature:
    """The Hessian of `fun` at `x`, from n^2 + O(n) values, none of them outside the box.

    Steps are such that a second difference is the geometric mean of the value and its noise: then
    half of the digits that values have are left, and the step is short, whatever the units of a
    variable. Where a bound is in the way, the point that is looked at lies within by a step.
    """
    values, eps = Values(fun, x, space, free, box), space.eps
    f0 = values(values.x)
    noise = eps * abs(f0)
    first = eps**0.25 * np.where(values.x == 0, 1.0, np.abs(values.x))
    steps = _steps(values, f0, first, noise, math.sqrt(noise * abs(f0)), tick)
    measured = _noise(values, steps)
    if measured > NOISY * noise:  # as of an integrator, or of arithmetic in float32
        noise = measured
        target = math.sqrt(noise * max(abs(f0), noise / eps**FEW_DIGITS))
        steps = _steps(values, f0, np.maximum(steps, first), noise, target, tick)
    centre = values.centre(steps)
    fc = f0 if (centre == values.x).all() else values(centre)
    ends = [values.along(centre, i, h) for i, h in enumerate(steps)]
    lines = Lines(steps, *np.array(ends).T)
    H = _hessian(values, centre, fc, lines, tick)
    g = (lines.above - lines.below) / (2 * steps) - H @ (centre - values.x)
    least = float(np.abs(np.diag(H) * steps**2).min())
    accuracy = 4 * noise / least if least else 1.0
    return Curvature(H, g, max(accuracy, eps))


def _steps(
    values: Values,
    f0: float,
    first: Small,
    noise: float,
    target: float,
    tick: Callable[[int], None],
) -> Small:
    """A step for each variable, from a first one."""
    steps = np.empty(values.n)
    for i in range(values.n):
        steps[i] = _step(values, i, f0, float(first[i]), noise, target)
        tick(2)
    return steps


def _step(values: Values, i: int, f0: float, h: float, noise: float, target: float) -> float:
    """The step along axis i whose second difference is near `target`."""
    h = values.room(i, h)
    for _ in range(TRIALS):
        at = values.centre(np.eye(1, values.n, i)[0] * h)
        middle = f0 if at[i] == values.x[i] else values(at)
        above, below = values.along(at, i, h)
        found, largest = abs(above + below - 2 * middle), max(abs(above), abs(below))
        # Where the value at the minimum is as good as zero, no rounding is to be feared
        zero = abs(f0) <= NEGLIGIBLE * largest < math.inf
        if target / NEAR <= found and (zero or found <= target * NEAR):
            return h
        known = max(found, NEAR * noise)  # less than that is noise
        factor = math.sqrt(target / known) if math.isfinite(known) else 1 / LONGEST
        longer = values.room(i, h * min(max(factor, 1 / LONGEST), LONGEST))
        if longer == h:
            break
        h = longer
    return h


def _noise(values: Values, steps: Small) -> float:
    """The noise of values, by fourth differences along a line (Hamming's table of differences)."""
    centre, line = values.centre(steps), steps / (PROBES * math.sqrt(values.n))
    probes = range(-PROBES, PROBES + 1)
    near = [values(centre + k * line) for k in probes]
    fourth = np.diff(near, 4)
    return float(np.sqrt(np.mean(fourth**2) / math.comb(8, 4)))


def _hessian(
    values: Values, at: Small, f0: float, lines: Lines, tick: Callable[[int], None]
) -> Small:
    """All second differences: two more values for each pair of variables."""
    h, ends = lines.steps, lines.above + lines.below
    H = np.diag((ends - 2 * f0) / h**2)
    for i in range(values.n):
        for j in range(i):
            both = np.zeros(values.n)
            both[[i, j]] = h[[i, j]]
            corners = values(at + both) + values(at - both)
            H[i, j] = H[j, i] = (corners - ends[i] - ends[j] + 2 * f0) / (2 * h[i] * h[j])
        tick(2 * i)
    return H


def value_count(n: int) -> int:
    """How many values that takes, about: for a progress bar."""
    return n * n + n
