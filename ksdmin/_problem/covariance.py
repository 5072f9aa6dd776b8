"""Standard errors: the inverse of the exact curvature at an estimate."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from scipy.optimize import OptimizeWarning
from scipy.sparse.linalg import LinearOperator, cg

from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.counting import as_counting
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem, Product, traits_of
from ksdmin._problem.stratified import StratifiedSubsets
from ksdmin._problem.subsets import PLAIN, as_subsets
from ksdmin._problem.user_values import as_vector

MAX_DENSE = 1000  # unknowns: so many products, and a matrix of 8 MB
MAX_SHIFT = 0.1  # standard errors: an estimate as near to the minimum as that will do
RESIDUAL = 1e-10  # of a column by conjugate gradients, relative


def covariance(
    problem: Problem,
    x: Any,
    *,
    columns: Sequence[int] | None = None,
    scale: float | None = None,
) -> npt.NDArray[np.float64]:
    """The covariance of the estimates `x`: a multiple of the inverse Hessian there.

    For a negative log-likelihood, a sum over observations, that is the inverse Hessian itself; the
    square roots of its diagonal are the standard errors. For a problem that is a mean over n
    samples, it is the inverse Hessian divided by n.

    That holds at a minimum within the bounds. At a bound that is active it does not: a warning says
    so, as far as the gradient tells. There, leave the unknowns that are held out of the problem,
    and take the covariance of the others.

    Parameters
    ----------
    problem : problem object
        What was minimised: of :func:`as_problem`, :func:`from_torch` and so on, or your own. Its
        curvature is used as it is: a Gauss-Newton matrix, where it has that, is the Fisher
        information for losses with canonical links; an L2 penalty is part of it. Without `hess`
        and `hessp`, gradients are differenced along every axis, by '3-point'; without `jac` too,
        the result has about four digits.
    x : array
        The minimum, such as ``res.x``; at another point it is not a covariance.
    columns : sequence of int, optional
        Only these columns, by conjugate gradients (to a relative residual of 1e-10): for more
        than 1000 unknowns, for which the whole matrix is not computed. Column i holds the
        variance of x[i] at place i.
    scale : float, optional
        What the inverse Hessian is multiplied by: 1, or 1 / n where the problem has subsets of n
        samples. Of a plain function it cannot be seen whether it is a mean: pass 1 / n where
        `fun(x)` is one over n observations, else standard errors are sqrt(n) times too large. For
        least squares, (1/2) the sum of squared residuals, it is their variance.

    Returns
    -------
    ndarray
        (n, n), or (n, len(columns)), in float64 on the host.

    Raises
    ------
    ValueError
        If the Hessian is not positive definite: `x` is not a strict minimum.

    Warns
    -----
    OptimizeWarning
        If the gradient at `x` is so large that a Newton step would move an unknown by more than a
        tenth of its standard error: `x` is not the minimum, or at a bound.

    Examples
    --------
    The rate of a Poisson distribution, and its standard error:

    >>> import numpy as np, ksdmin
    >>> counts = np.array([3, 5, 4, 8])
    >>> problem = ksdmin.as_problem(lambda t: np.sum(np.exp(t) - counts * t))
    >>> res = ksdmin.minimize(problem, [0.0])
    >>> error = np.sqrt(ksdmin.covariance(problem, res.x)[0, 0])
    >>> bool(np.isclose(error, 1 / np.sqrt(counts.sum())))
    True
    """
    if not hasattr(problem, "curvature"):
        kind = type(problem).__name__
        raise TypeError(f"expected a problem, not a {kind}: ksdmin.as_problem(fun, jac=...)")
    x, scale = _located(problem, x), _scale(problem, scale)
    space = Space(x)
    wanted = None if columns is None else _checked_columns(columns, space.n)
    if wanted is None and space.n > MAX_DENSE:
        raise ValueError(
            f"a covariance of {space.n} unknowns is computed by columns: pass columns=[...], the "
            f"indices of those of interest (the whole matrix: up to {MAX_DENSE} unknowns)"
        )
    if isinstance(problem, FunctionProblem):
        problem = problem.by_best_differences()
    product = _product(problem, x, space)
    accuracy = space.eps ** traits_of(problem).product_accuracy
    if wanted is None:
        inverse, wanted = _dense_inverse(product, space, accuracy), np.arange(space.n)
    else:
        inverse = _solved_columns(product, space, wanted, max(RESIDUAL, accuracy))
    _warn_of_slope(_gradient(problem, x, space), inverse, wanted, scale)
    return scale * inverse


def _located(problem: Problem, x: Any) -> Array:
    """`x` where the problem lives: what it brings as x0 says that."""
    x, own = as_vector(x), getattr(problem, "x0", None)
    if own is None:
        return x
    home = Space(own)
    if x.shape[0] != home.n:
        raise ValueError(f"x has {x.shape[0]} entries, the problem {home.n} unknowns")
    return x if home.holds(x) else home.to_device(to_host(x))


def _scale(problem: Problem, scale: float | None) -> float:
    """What the user gave, or what a mean over n samples asks for."""
    if scale is not None:
        if not 0 < scale < np.inf:
            raise ValueError(f"scale={scale!r}: expected a positive number")
        return float(scale)
    subsets = getattr(problem, "subsets", None)
    if subsets is None:
        return 1.0
    if isinstance(subsets, StratifiedSubsets):
        raise ValueError(
            "a weighted sum of blocks of residuals is no likelihood of n samples: pass scale=, "
            "such as the variance of a residual over its weight and the size of its block"
        )
    if getattr(problem, "is_weighted", False):
        raise ValueError(
            "the samples have weights, or ignored labels, so that their number is not that of the "
            "observations: pass scale=1 / observations"
        )
    n = as_subsets(subsets).size_of(as_subsets(subsets).full)
    if n is None:
        raise ValueError(
            "how many samples the problem is a mean over is not known from its own subsets: pass "
            "scale=1 / n"
        )
    return 1.0 / n


def _gradient(problem: Problem, x: Array, space: Space) -> Small:
    """The gradient at x on the whole set."""
    full = as_subsets(getattr(problem, "subsets", None) or PLAIN).full
    return to_host(as_counting(problem, space).value_and_gradient(x, full)[1])


def _warn_of_slope(g: Small, inverse: Small, wanted: Any, scale: float) -> None:
    """Warn where x is no minimum in the unknowns that are wanted: in units of their errors."""
    steps = np.abs(inverse.T @ g)  # of Newton's method, as the inverse is symmetric
    errors = np.sqrt(scale * inverse[wanted, np.arange(len(wanted))])
    shifts = steps / errors
    largest = int(np.argmax(shifts))
    if not shifts[largest] > MAX_SHIFT:
        return
    warnings.warn(
        f"x is no minimum: a Newton step would move x[{wanted[largest]}] by "
        f"{shifts[largest]:.2g} standard errors. At a bound that is active, the inverse Hessian is "
        "no covariance: leave the unknowns that are held there out of the problem; elsewhere, "
        "minimise further",
        OptimizeWarning,
        stacklevel=3,
    )


def _product(problem: Problem, x: Array, space: Space) -> Product:
    """The curvature at x on the whole set."""
    subsets = as_subsets(getattr(problem, "subsets", None) or PLAIN)
    if subsets.full is None:
        raise ValueError(
            "the problem's own subsets do not name the whole set: ksdmin.Subsets(sets, full=...)"
        )
    return as_counting(problem, space).curvature(x, subsets.full)


def _dense_inverse(product: Product, space: Space, accuracy: float) -> Small:
    """H^-1 by Cholesky; `accuracy` is the relative error of a product."""
    H = np.array([to_host(product(space.unit(i))) for i in range(space.n)])
    if not np.isfinite(H).all():
        raise ValueError("the curvature at x is not finite")
    H = (H + H.T) / 2
    size = np.sqrt(np.abs(np.diag(H)))
    size[size == 0] = 1.0
    scaled = H / np.outer(size, size)  # units of the unknowns must not decide what is singular
    least = float(eigvalsh(scaled, subset_by_index=[0, 0])[0])
    if least <= space.n * accuracy:
        raise ValueError(
            "the Hessian at x is not positive definite: its smallest eigenvalue is "
            f"{eigvalsh(H, subset_by_index=[0, 0])[0]:.2e} ({least:.2e} with a unit diagonal). x "
            "is no strict minimum, or the unknowns are not all determined by the data"
        )
    inverse = cho_solve(cho_factor(scaled), np.eye(space.n)) / np.outer(size, size)
    return np.asarray((inverse + inverse.T) / 2)


def _checked_columns(columns: Sequence[int], n: int) -> npt.NDArray[np.int64]:
    wanted = np.atleast_1d(np.asarray(columns))
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or not wanted.size:
        raise TypeError("columns: expected the indices of columns, such as [0, 3]")
    if wanted.min() < -n or wanted.max() >= n:
        raise IndexError(f"columns: there are {n} unknowns, from 0 to {n - 1}")
    return wanted.astype(np.int64) % n


def _solved_columns(product: Product, space: Space, wanted: Any, rtol: float) -> Small:
    """H^-1 e_i for each i that is wanted."""

    def times(v: Any) -> Small:
        v = np.ravel(v)
        Hv = to_host(product(space.to_device(v)))
        if v @ Hv <= 0 < v @ v:  # v is a direction of the conjugate gradients
            raise ValueError("the Hessian at x is not positive definite: x is no strict minimum")
        return Hv

    H = LinearOperator((space.n, space.n), matvec=times, dtype=np.float64)
    return np.stack([_solved(H, int(i), rtol) for i in wanted], axis=1)


def _solved(H: LinearOperator, i: int, rtol: float) -> Small:
    unit = np.zeros(H.shape[0])
    unit[i] = 1.0
    column, failed = cg(H, unit, rtol=rtol, maxiter=10 * H.shape[0])
    if failed or not column[i] > 0:
        raise ValueError(
            f"conjugate gradients found no column {i} of the inverse Hessian: it may not be "
            "positive definite at x, or very badly conditioned"
        )
    return np.asarray(column)
