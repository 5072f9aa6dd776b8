"""Whether a gradient agrees with the values near a point.

If the gradient is right, one more value, a step down, agrees with it. If not, the gradient counts
as wrong only if the values show the same slope on both sides of the point, for three lengths of the
step: then the difference is not due to rounding, noise, curvature or a kink.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space, to_host

# The relative difference allowed between the slope of the values and that of the gradient; more in
# arithmetic with half as many digits. A function counts as smooth if slopes differ by half of that.
TOLERANCE, COARSE_TOLERANCE = 0.05, 0.2
COARSE_EPS = 1e-10  # eps between those of float64 and float32
ROUNDINGS = 30  # roundings that a value contains
# A step should change values so much that their rounding error is this share of the change. In
# float32 the change is relative to the value, far above the error of products in bfloat16.
ROUNDING_SHARE, COARSE_CHANGE = 0.01, 0.02
COARSE_MAX_STEP = 0.01  # relative to the point
COARSE_STEP = float(np.finfo(np.float32).eps) ** 0.5  # of differences in float32, likewise
# Slopes are compared once more over this many steps. In float32 the step is long already.
OTHER_STEPS, COARSE_OTHER_STEPS = (3.0, 9.0), (1 / 3, 1 / 9)
MOST_ENTRIES = 50  # with so few unknowns, the entries of a gradient are checked one by one
NAMED = 3  # most entries that are named

ValueAt = Callable[[Array], float]
Movable = Callable[[Array], Array]


def slope_ratio(
    value_at: ValueAt,
    x: Array,
    value: float,
    g: Array,
    space: Space,
    noise: float | None = None,
    movable: Movable = lambda u: u,
) -> float | None:
    """The slope of the values near `x`, relative to that of `g`; None: they agree, or cannot tell.

    It costs one value if the gradient is right, and at most two if the function is not smooth.
    `noise` is the relative error of values; `movable` zeroes the components of a vector along which
    x must not move.
    """
    d = movable(direction(g, space))
    length = space.norm(d)
    if not (math.isfinite(value) and 0 < length < math.inf):
        return None
    d = d / length
    said = float(space.inner(g, d))
    if not 0 < said < math.inf:
        return None
    noise = ROUNDINGS * space.eps if noise is None else noise
    coarse, h = space.eps > COARSE_EPS, step_length(space, x, value, said, noise)
    tolerance = COARSE_TOLERANCE if coarse else TOLERANCE

    def slope(step: float) -> float:
        return (value_at(x + step * d) - value) / (step * said)

    rounding = noise * abs(value) / (h * said)
    back = slope(-h)
    if abs(back - 1) <= tolerance + rounding:
        return None
    middle = smooth_slope(back, slope(h), rounding, tolerance)
    if middle is None or abs(middle - 1) <= tolerance:
        return None
    for times in COARSE_OTHER_STEPS if coarse else OTHER_STEPS:
        other = smooth_slope(slope(-times * h), slope(times * h), rounding / times, tolerance)
        if other is None or abs(other - middle) > tolerance * max(1.0, abs(middle)):
            return None
    return middle


def slope_over_longer_steps(value_at: ValueAt, x: Array, value: float, space: Space) -> float:
    """The slope over steps as long as those of differences in float32; 0 if there is none.

    It counts only if it is the same on both sides and over half the step, so that it is not due to
    curvature.
    """
    u = space.taken(space.to_device(np.random.default_rng(0).standard_normal(space.n)))
    h = COARSE_STEP * max(1.0, space.max_abs(x)) / space.norm(u)
    slopes = [(value_at(x + t * u) - value) / (t * space.norm(u)) for t in (h, -h, h / 2, -h / 2)]
    smallest, largest = min(slopes), max(slopes)
    alike = largest - smallest <= COARSE_TOLERANCE * max(abs(smallest), abs(largest))
    return max(abs(smallest), abs(largest)) if alike else 0.0


def direction(g: Array, space: Space) -> Array:
    """A direction along which `g` rises, with a share of every axis.

    Along g itself, an entry that is zero by mistake would not show.
    """
    xp, typical = space.xp, space.norm(g) / space.n**0.5
    return g + typical * xp.where(g < 0, -xp.ones_like(g), xp.ones_like(g))


def longest_step(space: Space, x: Array) -> float:
    """The largest distance from x at which values are computed."""
    scale = max(1.0, space.max_abs(x))
    if space.eps > COARSE_EPS:
        return COARSE_MAX_STEP * scale
    return float(OTHER_STEPS[-1] * space.eps ** (1 / 3) * scale)


def smooth_slope(back: float, forth: float, rounding: float, tolerance: float) -> float | None:
    """The mean of the slopes on both sides; None if they differ, or cannot be trusted."""
    largest = max(abs(forth), abs(back))
    if not 0 < largest < math.inf:  # values rounded to the same number show nothing
        return None
    error = abs(forth - back) / 2 + rounding
    return (forth + back) / 2 if error <= tolerance / 2 * max(1.0, largest) else None


def step_length(space: Space, x: Array, value: float, size: float, noise: float) -> float:
    """The shortest step that rounding allows, where curvature, kinks and limits matter least."""
    scale = max(1.0, space.max_abs(x))
    if space.eps > COARSE_EPS:
        longest = COARSE_MAX_STEP * scale
        return min(COARSE_CHANGE * abs(value) / size, longest) or longest
    wanted = noise * abs(value) / (ROUNDING_SHARE * size)
    return float(min(max(wanted, space.eps ** (1 / 2) * scale), space.eps ** (1 / 3) * scale))


def wrong_entries(
    value_at: ValueAt, x: Array, value: float, g: Array, space: Space, movable: Movable
) -> list[tuple[int, float, float]]:
    """(entry, slope by g, slope by values) of the entries that differ most, for few unknowns.

    It takes two values for each entry.
    """
    if space.n > MOST_ENTRIES or space.eps > COARSE_EPS:
        return []
    slopes: Small = to_host(g)
    free = to_host(movable(space.xp.ones_like(g)))
    largest, found = abs(slopes).max(), []
    for i, said in enumerate(slopes.tolist()):
        if not free[i]:
            continue
        h = space.eps ** (1 / 3) * max(1.0, abs(float(x[i])))
        up, down = (value_at(x + step * space.unit(i)) for step in (h, -h))
        seen, bend = (up - down) / (2 * h), abs(up - 2 * value + down) / h
        off = abs(seen - said)
        if off > TOLERANCE * max(abs(said), abs(seen), TOLERANCE * largest) + bend:
            found.append((off, i, said, seen))
    return [named[1:] for named in sorted(found, reverse=True)[:NAMED]]
