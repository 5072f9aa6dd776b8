"""``covariance``, for a result, a problem or a function: standard errors.

The covariance is the inverse of the exact curvature at the estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from scipy.optimize import OptimizeResult, OptimizeWarning
from scipy.sparse.linalg import LinearOperator, cg

from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.box import Box, as_box
from ksdmin._problem.counting import CountingProblem, as_counting
from ksdmin._problem.differences import Values, second_differences, value_count
from ksdmin._problem.entry import bounds_by_name, problem_of, resolve_subsets
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem, Product
from ksdmin._problem.residuals import ResidualProblem
from ksdmin._problem.subsets import PLAIN, StratifiedSubsets, Subsets
from ksdmin._problem.user_values import as_vector, frames_to_the_user
from ksdmin._result import Result
from ksdmin._run.observer import progress_bar
from ksdmin._solver import differentiated

MAX_DENSE = 1000  # unknowns: so many products, and a matrix of 8 MB
MAX_SHIFT = 0.1  # an estimate this close to the minimum, in standard errors, is good enough
RESIDUAL = 1e-10  # relative accuracy of a column by conjugate gradients

Indices = npt.NDArray[np.int64]
Tick = Callable[[int], None]


def covariance(
    fun: Any,
    x: Any = None,
    args: Any = (),
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    *,
    columns: Sequence[int] | None = None,
    scale: float | None = None,
    subsets: Any = None,
    progress: bool = False,
) -> npt.NDArray[np.float64]:
    """The covariance of estimates: the inverse Hessian at the minimum, times a factor.

    The square roots of its diagonal are the standard errors. For a negative log-likelihood that is
    a sum over observations, the factor is 1. For a problem that is a mean over N samples, it is
    1 / N. For a vector of m residuals and n free variables (``as_problem`` with ``residuals=``),
    the covariance is ``RSS / (m - n) * inv(J.T @ J)``, where RSS is the sum of the squared
    residuals, as in SciPy's ``curve_fit``.

    Parameters
    ----------
    fun : OptimizeResult, problem object or callable
        A result of :func:`minimize`, :func:`resume` or a :class:`Solver`; leave all other arguments
        out then, except `columns`, `scale` and `progress`. Or the problem or function that was
        minimised, together with `x`. The curvature of a problem is used as it is. If that is a
        Gauss-Newton matrix, it equals the Fisher information for losses with canonical links. An L2
        penalty is part of it.
    x : array
        The minimum, such as ``res.x``. At any other point the result is not a covariance.
    args, jac, hess, hessp, bounds, subsets : optional
        As in :func:`minimize`. Without `hess` and `hessp`, the Hessian comes from finite
        differences of the gradient. Without `jac`, it takes about n^2 values of `fun`. Standard
        errors then have about seven digits if the values have sixteen, and half as many if the
        values are noisy.
    columns : sequence of int, optional
        Compute these columns only, by conjugate gradients (to a relative residual of 1e-10). For
        more than 1000 unknowns the whole matrix is not computed, and this is the only way. Entry i
        of column i is the variance of x[i].
    scale : float, optional
        The factor of the inverse Hessian, if it is not the one above. ksdmin cannot see whether a
        plain function is a mean. If `fun(x)` is a mean over N observations, pass 1 / N; without it,
        standard errors are sqrt(N) times too large. If residuals are divided by their known
        standard deviations (``absolute_sigma=True`` of ``curve_fit``), pass 1, or with subsets
        1 / m. For a mean or a sum of squared errors, pass ``2 * res.fun / (m - n)``.
    progress : bool, optional
        Show a progress bar (needs tqdm). Ctrl-C ends it at any time.

    Returns
    -------
    ndarray
        Of shape (n, n), or (n, len(columns)), in float64, in the CPU's memory. If the gradient
        pushes a variable against its bound, the Hessian does not determine its covariance: its row
        and column are NaN, and the other entries are computed as if it were constant. A variable
        whose bounds are equal is a constant: its row and column are zero.

    Raises
    ------
    ValueError
        If the Hessian is not positive definite: `x` is not a strict minimum. If the problem of the
        result no longer exists (see the notes).

    Warns
    -----
    OptimizeWarning
        If a Newton step from `x` would move an unknown by more than a tenth of its standard error:
        `x` is not the minimum, or it is at a bound that was not given.

    Notes
    -----
    A result keeps the functions that ``minimize`` got, and their `args`. It does not keep a problem
    object, which may hold large data or memory of a device: keep that in a variable of your own.
    Neither is pickled with a result, or deep-copied.

    Examples
    --------
    The rate of a Poisson distribution, and its standard error:

    >>> import numpy as np, ksdmin
    >>> counts = np.array([3, 5, 4, 8])
    >>> res = ksdmin.minimize(lambda t: np.sum(np.exp(t) - counts * t), [0.0])
    >>> error = np.sqrt(ksdmin.covariance(res)[0, 0])
    >>> bool(np.isclose(error, 1 / np.sqrt(counts.sum())))
    True
    """
    if isinstance(fun, OptimizeResult):
        beside = x, args, jac, hess, hessp, bounds, subsets
        problem, x, bounds, subsets = _of_result(fun, *beside)
    elif not callable(fun) and not hasattr(fun, "value_and_gradient"):
        raise TypeError(
            f"expected a result, a problem or a function, not a {type(fun).__name__}: "
            "ksdmin.covariance(res), or ksdmin.covariance(fun, res.x, jac=...)"
        )
    else:
        if x is None:
            raise TypeError(
                "x is missing: ksdmin.covariance(fun, res.x), or ksdmin.covariance(res)"
            )
        problem = problem_of(fun, args, jac, hess, hessp, subsets, None)
        bounds = bounds_by_name(problem, bounds)
        if jac is hess is hessp is None:
            problem = differentiated(problem, fun, x, args, None, bounds)
    x = _located(problem, x)
    space, box, sets = Space(x), as_box(bounds, x), resolve_subsets(problem, subsets)
    wanted = _wanted(columns, space.n)
    if sets.full is None:
        raise ValueError(
            "the problem's own subsets do not name the whole set: ksdmin.Subsets(sets, full=...)"
        )
    only_values = False
    if isinstance(problem, FunctionProblem):
        only_values = problem.has_only_values
        problem = (problem if box is None else problem.within(box)).by_best_differences()
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
        count = value_count(len(free)) if only_values else len(free)
        with ExitStack() as stack:
            tick = (
                _progress(stack, count if small else len(own)) if progress else lambda parts: None
            )
            inverse, g = _dense(at, own, only_values, tick) if small else _by_cg(at, own, tick)
        _warn_of_slope(at, g, inverse, own, scale)
        whole[np.ix_(free, np.flatnonzero(kept))] = scale * inverse
    whole[held] = whole[:, held[wanted]] = np.nan
    return whole


def _progress(stack: ExitStack, total: int) -> Tick:
    """A function that moves a progress bar of so many parts."""
    bar = stack.enter_context(progress_bar("covariance", total=total, bar_format=None))
    return lambda parts: bar.update(min(parts, total - bar.n))


def _of_result(res: OptimizeResult, *others: Any) -> tuple[Problem, Any, Any, Any]:
    """The problem of a result, its minimum, bounds and subsets; it has all `others`, too."""
    if any(not (one is None or (isinstance(one, tuple) and not one)) for one in others):
        raise TypeError(
            "beside a result, which knows its problem, its minimum and its bounds, covariance "
            "takes columns=, scale= and progress= only; or covariance(fun, x, ...) without it"
        )
    instead = "ksdmin.covariance(fun, res.x, jac=...), or ksdmin.covariance(problem, res.x)"
    origin = res.origin() if isinstance(res, Result) else None
    if origin is None:
        raise ValueError(
            "this result does not know its problem: it is SciPy's, or was pickled or deep-copied: "
            f"{instead}"
        )
    if origin.problem is None:
        raise ValueError(
            "the problem of this result does not exist any more, as a result does not keep it: "
            f"keep it in a variable, or make it again: {instead}"
        )
    if origin.x is not None:
        return origin.problem, origin.x, origin.bounds, origin.subsets
    if tuple(np.shape(res.x)) != (origin.n,):
        raise ValueError(
            f"the result has {np.size(res.x)} unknowns, and its run had {origin.n}: {instead}"
        )
    return origin.problem, res.x, origin.bounds, origin.subsets


def _located(problem: Problem, x: Any) -> Array:
    """`x` in the namespace and on the device of the problem, as of its x0."""
    x, own = as_vector(x), getattr(problem, "x0", None)
    if own is None:
        return x
    home = Space(own)
    if x.shape[0] != home.n:
        raise ValueError(f"x has {x.shape[0]} entries, the problem {home.n} unknowns")
    return x if home.holds(x) else home.to_device(to_host(x))


# The computation


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
        return lambda v: to_host(times(self._with(v, 0.0)))[self.free]

    def values(self) -> Values:
        """The function, the estimate and the bounds in the free variables."""
        x = to_host(self.x)
        low, high = np.full(x.shape, -np.inf), np.full(x.shape, np.inf)
        if self.box is not None:
            low, high = to_host(self.box.lower), to_host(self.box.upper)
        value = lambda v: self.problem.value(self._with(v, x), self.full)  # noqa: E731
        return Values(value, x[self.free], low[self.free], high[self.free])

    def _with(self, v: Small, held: Any) -> Array:
        """The vector with `v` in the free variables, and `held` elsewhere."""
        whole = np.zeros(self.space.n) + held
        whole[self.free] = v
        return self.space.to_device(whole)

    @property
    def accuracy(self) -> float:
        """The relative error of a product."""
        return float(self.space.eps**self.problem.traits.product_accuracy)


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


def _dense(at: Estimate, own: Indices, only_values: bool, tick: Tick) -> tuple[Small, Small]:
    """Columns of the inverse by Cholesky, and the gradient, in the free variables."""
    if only_values:
        H, g, accuracy = second_differences(at.values(), at.space.eps, tick)
        hint = (
            f". Differences of values have errors of about {accuracy:.0e}: pass jac for more digits"
        )
        return _inverse(H, accuracy, hint)[:, own], g
    product, rows = at.product(), []
    for unit in np.eye(len(at.free)):
        rows.append(product(unit))
        tick(1)
    return _inverse(np.array(rows), at.accuracy)[:, own], at.gradient()


def _by_cg(at: Estimate, own: Indices, tick: Tick) -> tuple[Small, Small]:
    """The same by conjugate gradients."""
    n, product = len(at.free), at.product()

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


def _warn_of_slope(at: Estimate, g: Small, inverse: Small, own: Indices, scale: float) -> None:
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
        stacklevel=frames_to_the_user(),
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
