"""``covariance``, for a result, a problem or a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult

from ksdmin._problem.arrays import Array, Space, to_host
from ksdmin._problem.box import as_box
from ksdmin._problem.covariance import Tick, covariance_at
from ksdmin._problem.entry import bounds_by_name, problem_of, resolve_subsets
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem
from ksdmin._problem.user_values import as_vector, frames_to_the_user
from ksdmin._result import Result
from ksdmin._run.observer import progress_bar
from ksdmin._solver import differentiated


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
    box = as_box(bounds, x)
    if box is not None and isinstance(problem, FunctionProblem):
        problem = problem.within(box)
    sets = resolve_subsets(problem, subsets)
    with ExitStack() as stack:
        watched = _watched_by(stack, progress)
        frames = frames_to_the_user()
        return covariance_at(problem, x, sets, box, columns, scale, watched, frames)


def _watched_by(stack: ExitStack, progress: bool) -> Callable[[int], Tick]:
    """A function that makes a progress bar of so many parts, if wanted."""

    def watched(total: int) -> Tick:
        if not progress:
            return lambda parts: None
        bar = stack.enter_context(progress_bar("covariance", total=total, bar_format=None))
        return lambda parts: bar.update(min(parts, total - bar.n))

    return watched


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
