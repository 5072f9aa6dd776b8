"""Standard errors: the inverse of the exact curvature at an estimate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from scipy.optimize import OptimizeWarning
from scipy.sparse.linalg import LinearOperator, cg

from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.box import Box
from ksdmin._problem.counting import CountingProblem, as_counting
from ksdmin._problem.differences import second_differences, value_count
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem, Product
from ksdmin._problem.residuals import ResidualProblem
from ksdmin._problem.subsets import PLAIN, StratifiedSubsets, Subsets

MAX_DENSE = 1000  # unknowns: so many products, and a matrix of 8 MB
MAX_SHIFT = 0.1  # an estimate this close to the minimum, in standard errors, is good enough
RESIDUAL = 1e-10  # relative accuracy of a column by conjugate gradients

Indices = npt.NDArray[np.int64]
Tick = Callable[[int], None]


class Estimate(NamedTuple):
    """Where the covariance is taken: a problem on its whole set, the variables that are free."""

    problem: CountingProblem  # by its best differences, if it has any
    x: Array  # the estimate
    space: Space  # of x
    full: Any  # the whole set of samples
    box: Box | None  # the bounds
    free: Indices  # the variables that no bound holds

    def gradient(self) -> Small:
        """The gradient in the free variables."""
        return to_host(self.problem.value_and_gradient(self.x, self.full)[1])[self.free]

    def product(self) -> Callable[[Small], Small]:
        """v -> Hv in the free variables."""
        times: Product = self.problem.curvature(self.x, self.full)

        def on_free(v: Small) -> Small:
            whole = np.zeros(self.space.n)
            whole[self.free] = v
            return to_host(times(self.space.to_device(whole)))[self.free]

        return on_free

    @property
    def accuracy(self) -> float:
        """The relative error of a product."""
        return float(self.space.eps**self.problem.traits.product_accuracy)


def covariance_at(
    problem: Problem,
    x: Array,
    sets: Subsets,
    box: Box | None,
    columns: Sequence[int] | None,
    scale: float | None,
    watched: Callable[[int], Tick],
    frames: int,
) -> Small:
    """See :func:`ksdmin.covariance`; `watched` makes a progress bar with so many parts."""
    space = Space(x)
    wanted = _wanted(columns, space.n)
    if sets.full is None:
        raise ValueError(
            "the problem's own subsets do not name the whole set: ksdmin.Subsets(sets, full=...)"
        )
    only_values = isinstance(problem, FunctionProblem) and problem.has_only_values
    if isinstance(problem, FunctionProblem):
        problem = problem.by_best_differences()
    counting = as_counting(problem, space)
    fixed, held = _fixed_and_held(counting, x, sets.full, box)
    free = np.flatnonzero(~(fixed | held))
    at = Estimate(counting, x, space, sets.full, box, free)
    scale = _scale(problem, at, sets, scale)
    whole = np.zeros((space.n, len(wanted)))
    if free.size:
        kept = np.isin(wanted, free)
        own = np.searchsorted(free, wanted[kept])
        small = columns is None or (only_values and space.n <= MAX_DENSE)
        inverse, g = _dense(at, own, only_values, watched) if small else _by_cg(at, own, watched)
        _warn_of_slope(at, g, inverse, own, scale, frames)
        whole[np.ix_(free, np.flatnonzero(kept))] = scale * inverse
    whole[held] = whole[:, held[wanted]] = np.nan
    return whole


def _wanted(columns: Sequence[int] | None, n: int) -> Indices:
    """The indices of the columns; None: of all."""
    if columns is None:
        if n > MAX_DENSE:
            raise ValueError(
                f"a covariance of {n} unknowns is computed by columns: pass columns=[...], the "
                f"indices of those of interest (the whole matrix: up to {MAX_DENSE} unknowns)"
            )
        return np.arange(n)
    wanted = np.atleast_1d(np.asarray(columns))
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or not wanted.size:
        raise TypeError("columns: expected the indices of columns, such as [0, 3]")
    if wanted.min() < -n or wanted.max() >= n:
        raise IndexError(f"columns: there are {n} unknowns, from 0 to {n - 1}")
    return wanted.astype(np.int64) % n


def _fixed_and_held(
    problem: CountingProblem, x: Array, full: Any, box: Box | None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Variables whose bounds are equal, and others that the gradient presses against a bound."""
    none = np.zeros(x.shape[0], dtype=bool)
    if box is None:
        return none, none
    at, low, high = to_host(x), to_host(box.lower), to_host(box.upper)
    if (at < low).any() or (at > high).any():
        raise ValueError("x lies outside the bounds")
    fixed = low == high
    if not ((at == low) | (at == high))[~fixed].any():
        return fixed, none
    value, gradient = problem.value_and_gradient(x, full)
    g, error = to_host(gradient), Space(x).eps ** problem.traits.gradient_accuracy * abs(value)
    held = ((at == low) & (g > error)) | ((at == high) & (g < -error))
    return fixed, held & ~fixed


def _dense(
    at: Estimate, own: Indices, only_values: bool, watched: Callable[[int], Tick]
) -> tuple[Small, Small]:
    """Columns of the inverse by Cholesky, and the gradient, in the free variables."""
    n = len(at.free)
    if only_values:
        tick = watched(value_count(n))
        fun = lambda point: at.problem.value(point, at.full)  # noqa: E731
        H, g, accuracy = second_differences(fun, at.x, at.space, at.free, at.box, tick)
        hint = (
            f". Differences of values have errors of about {accuracy:.0e}: pass jac for more digits"
        )
        return _inverse(H, accuracy, hint)[:, own], g
    product, tick, rows = at.product(), watched(n), []
    for unit in np.eye(n):
        rows.append(product(unit))
        tick(1)
    return _inverse(np.array(rows), at.accuracy)[:, own], at.gradient()


def _by_cg(at: Estimate, own: Indices, watched: Callable[[int], Tick]) -> tuple[Small, Small]:
    """The same by conjugate gradients."""
    n, product, tick = len(at.free), at.product(), watched(len(own))

    def times(v: Any) -> Small:
        v = np.ravel(v)
        Hv = product(v)
        if v @ Hv <= 0 < v @ v:  # v is a direction of the conjugate gradients
            raise ValueError("the Hessian at x is not positive definite: x is not a strict minimum")
        return Hv

    H = LinearOperator((n, n), matvec=times, dtype=np.float64)
    rtol, columns = max(RESIDUAL, at.accuracy), np.empty((n, len(own)))
    for k, i in enumerate(map(int, own)):
        columns[:, k], failed = cg(H, np.eye(1, n, i)[0], rtol=rtol, maxiter=10 * n)
        if failed or not columns[i, k] > 0:
            raise ValueError(
                f"conjugate gradients found no column {i} of the inverse Hessian: it may not be "
                "positive definite at x, or very badly conditioned"
            )
        tick(1)
    return columns, at.gradient()


def _scale(problem: Any, at: Estimate, sets: Subsets, scale: float | None) -> float:
    """The user's scale; or by default the variance of residuals, or 1 / n for a mean."""
    if scale is not None:
        if not 0 < scale < np.inf:
            raise ValueError(f"scale={scale!r}: expected a positive number")
        return float(scale)
    if isinstance(problem, ResidualProblem):
        m, count = len(problem.residuals(at.x, at.full)), len(at.free)
        if m <= count:
            raise ValueError(
                f"{m} residuals for {count} unknowns leave nothing to estimate the variance of "
                "residuals from: pass scale=, their variance"
            )
        # The objective c RSS has the Hessian 2 c J^T J, so the factor is 2 c RSS / (m - count)
        return 2 * at.problem.value(at.x, at.full) / (m - count)
    if isinstance(sets, StratifiedSubsets):
        raise ValueError(
            "a weighted sum of blocks of residuals is not a likelihood of n samples: pass scale=, "
            "such as the variance of a residual over its weight and the size of its block"
        )
    if getattr(problem, "is_weighted", False):
        raise ValueError(
            "the samples have weights, or ignored labels, so that their number is not that of the "
            "observations: pass scale=1 / observations"
        )
    if sets is PLAIN:
        return 1.0
    n = sets.size_of(sets.full)
    if n is None:
        raise ValueError(
            "how many samples the problem is a mean over is not known from its own subsets: pass "
            "scale=1 / n"
        )
    return 1.0 / n


def _warn_of_slope(
    at: Estimate, g: Small, inverse: Small, own: Indices, scale: float, frames: int
) -> None:
    """Warn if x is not a minimum in the wanted unknowns, measured in their standard errors."""
    if not own.size:
        return
    steps = np.abs(inverse.T @ g)  # the Newton step, since the inverse is symmetric
    errors = np.sqrt(scale * inverse[own, np.arange(len(own))])
    shifts = np.divide(steps, errors, out=np.zeros_like(steps), where=errors > 0)
    largest = int(np.argmax(shifts))
    if not shifts[largest] > MAX_SHIFT:
        return
    bound = "" if at.box is not None else "At a bound that is active, pass bounds=; elsewhere, "
    warnings.warn(
        f"x is not a minimum: a Newton step would move x[{at.free[own[largest]]}] by "
        f"{shifts[largest]:.2g} standard errors. {bound}{'m' if bound else 'M'}inimise further",
        OptimizeWarning,
        stacklevel=frames + 2,  # which is that of the caller's caller
    )


def _inverse(H: Small, accuracy: float, hint: str = "") -> Small:
    """H^-1 by Cholesky; `accuracy` is the relative error of a product."""
    if not np.isfinite(H).all():
        raise ValueError(
            "the curvature at x is not finite: is x at the edge of where the function is finite?"
        )
    H = (H + H.T) / 2
    size = np.sqrt(np.abs(np.diag(H)))
    size[size == 0] = 1.0
    scaled = H / np.outer(size, size)  # units must not decide what is singular
    least = float(eigvalsh(scaled, subset_by_index=[0, 0])[0])
    if least <= len(H) * accuracy:
        hint = hint if least >= -len(H) * accuracy else ""  # more digits would change nothing
        raise ValueError(
            "the Hessian at x is not positive definite: its smallest eigenvalue is "
            f"{eigvalsh(H, subset_by_index=[0, 0])[0]:.2e} ({least:.2e} with a unit diagonal). x "
            f"is not a strict minimum, or the unknowns are not all determined by the data{hint}"
        )
    inverse = cho_solve(cho_factor(scaled), np.eye(len(H))) / np.outer(size, size)
    return np.asarray((inverse + inverse.T) / 2)
