"""Whether a model is linear in its parameters, judged from its outputs along a line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space, to_host

# Second difference relative to the first, along a line: less is rounding (float32 has 1e-7, TF32
# 5e-4), and a net has far more.
LINEARITY_TOL = 1e-3


def is_nonlinear(outputs: Callable[[Array], Array], x: Array) -> bool:
    """Whether a model's outputs are nonlinear in its parameters around `x`.

    They are compared at three points on a random line, as far from `x` as `x` is from zero.
    """
    space = Space(x)
    length = space.norm(x) or 1.0
    direction = np.random.default_rng(0).standard_normal(space.n)
    step = space.to_device(direction * (length / np.linalg.norm(direction)))
    behind, middle, ahead = (to_host(outputs(x + t * step)) for t in (-1.0, 0.0, 1.0))
    return is_bent(behind, middle, ahead, 0.5)


def is_bent(start: Small, between: Small, end: Small, share: float, rounding: float = 0.0) -> bool:
    """Whether outputs at a point between two others, at a share of the way, are off their line.

    Less than so many times the outputs is `rounding`.
    """
    line = (1 - share) * start + share * end
    deviation, change = (np.abs(u).max(initial=0.0) for u in (between - line, end - start))
    size = np.abs(between).max(initial=0.0)
    return not deviation <= LINEARITY_TOL * share * change + rounding * size
