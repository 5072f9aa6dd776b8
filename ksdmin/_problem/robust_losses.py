"""The loss functions of ``scipy.optimize.least_squares``: rho(z) of squared residuals z."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ksdmin._problem.arrays import Small

Loss = Callable[[Small], Small]
"""z -> rho(z), rho'(z) and rho''(z), one row each."""


def linear(z: Small) -> Small:
    """Plain squares."""
    return np.stack([z, np.ones_like(z), np.zeros_like(z)])


def soft_l1(z: Small) -> Small:
    """A smooth absolute value: 2 (sqrt(1 + z) - 1)."""
    t = 1 + z
    root = np.sqrt(t)  # powers take ten times as long
    return np.stack([2 * z / (root + 1), 1 / root, -0.5 / (t * root)])


def huber(z: Small) -> Small:
    """Squares up to 1, absolute values beyond."""
    far = np.maximum(z, 1.0)  # where z is small it is not used
    root, inner = np.sqrt(far), z <= 1
    return np.stack(
        [
            np.where(inner, z, 2 * root - 1),
            np.where(inner, 1.0, 1 / root),
            np.where(inner, 0.0, -0.5 / (far * root)),
        ]
    )


def cauchy(z: Small) -> Small:
    """The logarithm of 1 + z."""
    t = 1 + z
    return np.stack([np.log1p(z), 1 / t, -1 / t**2])


def arctan(z: Small) -> Small:
    """Bounded by pi / 2."""
    t = 1 + z**2
    return np.stack([np.arctan(z), 1 / t, -2 * z / t**2])


LOSSES: dict[str, Loss] = {f.__name__: f for f in (linear, soft_l1, huber, cauchy, arctan)}


def as_loss(loss: Any) -> Loss:
    """A loss by its name, or a user's own callable, whose result is checked."""
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    if not callable(loss):
        names = ", ".join(map(repr, LOSSES))
        raise ValueError(
            f"loss={loss!r}: expected one of {names}, or a callable rho(z) that returns the values "
            "and the first and second derivatives, shape (3, m)"
        )
    return partial(_checked, loss)  # no closure, so that a problem can be pickled


def _checked(loss: Callable[[Small], Any], z: Small) -> Small:
    """What a user's loss returns."""
    rho = np.asarray(loss(z.copy()), dtype=np.float64)
    if rho.shape != (3, *z.shape):
        raise ValueError(
            f"loss returned shape {rho.shape}, expected {(3, *z.shape)}: the values, and the "
            "first and second derivatives"
        )
    return rho
