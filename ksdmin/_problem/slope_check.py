"""Whether a gradient is that of the values: they are looked at beside a point, along it.

One value more, a step down, agrees with a right gradient. Where it does not, the values have the
last word only if they tell the same slope on both sides of the point, at three lengths of the step:
then neither rounding, noise of the values, curvature nor a kink has made it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space, to_host

# By how much the slope of the values may differ from that which the gradient says, relatively; in
# arithmetic of half as many digits more. A function is smooth where slopes differ by half of that.
TOLERANCE, COARSE_TOLERANCE = 0.05, 0.2
COARSE_EPS = 1e-10  # between that of float64 and that of float32
ROUNDINGS = 30  # that a value carries
# The rounding error of values is to be this share of what a step changes them by. In float32 that
# change is relative to the value, far above the error of products in bfloat16.
ROUNDING_SHARE, COARSE_CHANGE = 0.01, 0.02
COARSE_MAX_STEP = 0.01  # relative to the point
COARSE_STEP = float(np.finfo(np.float32).eps) ** 0.5  # of differences in float32, likewise
# Times the step: where slopes are compared once more. In float32 the step is long already.
OTHER_STEPS, COARSE_OTHER_STEPS = (3.0, 9.0), (1 / 3, 1 / 9)
MOST_ENTRIES = 50  # unknowns: so many entries of a gradient are looked at one by one
NAMED = 3  # entries, at most


def slope_ratio(
    value_at: Callable[[Array], float],
    x: Array,
    value: float,
    g: Array,
    space: Space,
    noise: float | None = None,
    movable: Callable[[Array], Array] = lambda u: u,
) -> float | None:
    """How many times steeper than `g` says the values beside `x` are; None: they agree with it.

    Also where they cannot tell. One value is computed where the gradient is right, and no more than
    two where the function is not smooth. `noise` is the relative error of values; `movable` zeroes
    the components of a vector along which x must not move.
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


def slope_over_longer_steps(
    value_at: Callable[[Array], float], x: Array, value: float, space: Space
) -> float:
    """The slope over steps as long as those of differences in float32; 0 where there is none.

    It counts where it is the same on both sides, and over steps of a half: then curvature has not
    made it.
    """
    u = space.taken(space.to_device(np.random.default_rng(0).standard_normal(space.n)))
    h = COARSE_STEP * max(1.0, space.max_abs(x)) / space.norm(u)
    slopes = [(value_at(x + t * u) - value) / (t * space.norm(u)) for t in (h, -h, h / 2, -h / 2)]
    smallest, largest = min(slopes), max(slopes)
    alike = largest - smallest <= COARSE_TOLERANCE * max(abs(smallest), abs(largest))
    return max(abs(smallest), abs(largest)) if alike else 0.0


def direction(g: Array, space: Space) -> Array:
    """A direction along which `g` rises, with a share of every axis.

    An entry that is zero by mistake does not show along g itself.
    """
    xp, typical = space.xp, space.norm(g) / space.n**0.5
    return g + typical * xp.where(g < 0, -xp.ones_like(g), xp.ones_like(g))


def longest_step(space: Space, x: Array) -> float:
    """How far from x values are computed at most."""
    scale = max(1.0, space.max_abs(x))
    if space.eps > COARSE_EPS:
        return COARSE_MAX_STEP * scale
    return float(OTHER_STEPS[-1] * space.eps ** (1 / 3) * scale)


def smooth_slope(back: float, forth: float, rounding: float, tolerance: float) -> float | None:
    """The slope between those on either side; None where they differ, or are not to be trusted."""
    largest = max(abs(forth), abs(back))
    if not 0 < largest < math.inf:  # values that are rounded to the same number tell nothing
        return None
    error = abs(forth - back) / 2 + rounding
    return (forth + back) / 2 if error <= tolerance / 2 * max(1.0, largest) else None


def step_length(space: Space, x: Array, value: float, size: float, noise: float) -> float:
    """As short as rounding allows: so curvature, kinks and limits of the domain matter least."""
    scale = max(1.0, space.max_abs(x))
    if space.eps > COARSE_EPS:
        longest = COARSE_MAX_STEP * scale
        return min(COARSE_CHANGE * abs(value) / size, longest) or longest
    wanted = noise * abs(value) / (ROUNDING_SHARE * size)
    return float(min(max(wanted, space.eps ** (1 / 2) * scale), space.eps ** (1 / 3) * scale))


def wrong_entries(
    value_at: Callable[[Array], float],
    x: Array,
    value: float,
    g: Array,
    space: Space,
    movable: Callable[[Array], Array] = lambda u: u,
) -> list[tuple[int, float, float]]:
    """(entry, what g says, what values say) of the entries that contradict most; of few unknowns.

    Two values for each.
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
