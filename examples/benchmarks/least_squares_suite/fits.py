"""One problem of least squares: residuals, their Jacobian, a start, and how a run is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]

# A complex step has no cancellation: any small one gives derivatives to rounding.
COMPLEX_STEP = 1e-150


@dataclass(frozen=True)
class Fit:
    """A problem, and what is known of its solutions.

    Attributes
    ----------
    name : str
        The problem and its start.
    residuals, jacobian : callable
        Functions of the unknowns.
    start : array
        Where a run begins.
    certified : array or None
        The solution, where there is one that counts alone.
    minima : tuple of float
        The sums of squares of the known local minima, where any of them counts.
    lower, upper : array or None
        Bounds.
    loss, f_scale : str, float
        A robust loss, and beyond what a residual is an outlier for it.
    """

    name: str
    residuals: Function
    jacobian: Function
    start: np.ndarray
    certified: np.ndarray | None = None
    minima: tuple[float, ...] = ()
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    loss: str = "linear"
    f_scale: float = 1.0

    def digits(self, x: np.ndarray) -> float:
        """Correct digits: of the worst unknown, at most 11; or of the sum of squares."""
        if not np.isfinite(x).all():
            return 0.0
        if self.certified is not None:
            error = np.max(np.abs(x - self.certified) / np.abs(self.certified))
            return digits_of(float(error))
        with np.errstate(all="ignore"):
            r = self.residuals(np.asarray(x, dtype=float))
            square = float(r @ r)
        return max((digits_of(relative(square, least)) for least in self.minima), default=0.0)


def relative(square: float, least: float) -> float:
    """By how much a sum of squares lies above a minimum; rounding may leave it below.

    Where the least is zero there is nothing to be relative to: a norm of 1e-6 has six digits.
    """
    if not np.isfinite(square):
        return np.inf
    return float(np.sqrt(square)) if least == 0 else max(square / least - 1, 0.0)


def digits_of(error: float) -> float:
    """Decimal digits of a relative error, between 0 and 11."""
    return float(np.clip(-np.log10(error), 0, 11)) if error > 0 else 11.0


def by_complex_step(residuals: Function) -> Function:
    """The Jacobian, exact to rounding, of residuals that complex numbers can pass through."""

    def jacobian(x: np.ndarray) -> np.ndarray:
        n = len(x)
        columns = []
        for i in range(n):
            at = x.astype(complex)
            at[i] += 1j * COMPLEX_STEP
            columns.append(np.imag(residuals(at)) / COMPLEX_STEP)
        return np.array(columns).T

    return jacobian
