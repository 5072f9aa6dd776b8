"""``as_problem``: SciPy-style callables, or a vector of residuals, as a problem object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ksdmin._problem.arrays import Array, rounded_like
from ksdmin._problem.functions import DifferencedProblem, FunctionProblem
from ksdmin._problem.protocol import Problem
from ksdmin._problem.residuals import ResidualProblem
from ksdmin._problem.subsets import PLAIN, Subsets, as_subsets
from ksdmin._problem.user_values import as_vector


def as_problem(
    fun: Callable[..., Any] | None = None,
    args: Any = (),
    jac: Callable[..., Any] | bool | str | None = None,
    hess: Callable[..., Any] | str | None = None,
    hessp: Callable[..., Any] | None = None,
    subsets: Any = None,
    precond: Any = None,
    *,
    nonlinear: bool = False,
    residuals: Callable[..., Any] | None = None,
    loss: str | Callable[..., Any] = "linear",
    f_scale: float = 1.0,
) -> FunctionProblem:
    """Make SciPy-style callables, or a vector of residuals, into a problem object.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> float``; with subsets ``fun(x, idx, *args)``, the mean over `idx`.
    args : tuple, optional
        Extra arguments of all callables.
    jac : callable, bool, '2-point', '3-point', 'cs', optional
        The gradient. True: `fun` returns (value, gradient). A scheme: finite differences. None is
        '2-point'; a run changes to '3-point' when the error of '2-point' would hide the gradient.
    hess : callable, '2-point', '3-point', 'cs', optional
        ``hess(x, *args)`` returns the Hessian: dense, sparse or a LinearOperator. `hess` takes
        precedence over `hessp`. But if `hess` is dense, and both are given, it is called only where
        it is less work than products. A scheme: products by finite differences of the gradient.
        'cs' is the same as '2-point', because gradients are real.
    hessp : callable, optional
        ``hessp(x, p, *args)``, with subsets ``hessp(x, p, idx, *args)``: the product of the Hessian
        with p. Without `hess` and `hessp`, products are finite differences of the gradient along p.
    subsets : int, Subsets, callable or iterable, optional
        See :class:`Subsets`.
    precond : array or callable, optional
        A positive diagonal D, a rough approximation of the Hessian's diagonal: n numbers, or a
        function ``precond(x, *args)`` (with subsets ``precond(x, idx, *args)``) that returns them.
        Zeros are raised to a small share of the largest entry. If a function returns only zeros,
        there is no preconditioner at that point.
    nonlinear : bool, optional
        Whether the losses belong to a model that is not linear in its parameters, such as a net.
        With subsets, the first steps are then damped, and the sets B (curvature) and C (search) may
        be small, as with ``from_torch`` (see :class:`Traits`).
    residuals : callable, optional
        Instead of `fun`: ``residuals(x, *args)`` returns a vector of m residuals, as in
        :func:`scipy.optimize.least_squares`. The objective is SciPy's cost,
        ``0.5 * sum(f_scale**2 * rho((r / f_scale)**2))``. The curvature is the Gauss-Newton
        matrix. `jac` is then the Jacobian, of shape (m, n): dense, sparse, a LinearOperator, or by
        finite differences. With subsets, ``residuals(x, idx, *args)`` and ``jac(x, idx, *args)``
        return the rows `idx`, and the objective is the mean over rows instead of the sum. Without
        `precond`, the preconditioner is the diagonal of the Gauss-Newton matrix (none for a
        LinearOperator).
    loss : {'linear', 'soft_l1', 'huber', 'cauchy', 'arctan'} or callable, optional
        The function rho of the squared residuals z. A callable returns rho(z), rho'(z) and
        rho''(z), as an array of shape (3, m).
    f_scale : float, optional
        Larger residuals count as outliers in `loss`.

    Returns
    -------
    FunctionProblem
        A :class:`Problem`: it has the methods ``value``, ``value_and_gradient`` and ``curvature``.

    See Also
    --------
    minimize : minimises the problem
    from_torch, from_jax, from_autograd : problems whose derivatives are computed
    covariance : standard errors at the minimum

    Examples
    --------
    >>> import numpy as np, ksdmin
    >>> problem = ksdmin.as_problem(lambda x: x @ x, jac=lambda x: 2 * x)
    >>> problem.value(np.array([3.0, 4.0]))
    25.0

    Residuals:

    >>> problem = ksdmin.as_problem(residuals=lambda x: [10 * (x[1] - x[0] ** 2), 1 - x[0]])
    >>> ksdmin.minimize(problem, [-1.2, 1.0]).x.round(4).tolist()
    [1.0, 1.0]
    """
    if residuals is None:
        if loss != "linear" or f_scale != 1.0:
            raise TypeError("loss= and f_scale= go with residuals=: leave them out")
        if not callable(fun):
            raise TypeError(f"fun must be callable or a problem object, not {type(fun).__name__}")
        jac = "2-point" if jac is None or jac is False else jac
        kind = DifferencedProblem if isinstance(jac, str) else FunctionProblem
        return kind(fun, args, jac, hess, hessp, subsets, precond, nonlinear)
    beside = {"fun": fun, "hess": hess, "hessp": hessp}
    given = [name for name, value in beside.items() if value is not None]
    if given:
        raise TypeError(
            f"{', '.join(given)} beside residuals=, whose squares are the objective and whose "
            "Jacobian gives its curvature: leave out"
        )
    return ResidualProblem(residuals, args, jac, loss, f_scale, subsets, precond, nonlinear)


def problem_of(
    fun: Any, args: Any, jac: Any, hess: Any, hessp: Any, subsets: Any, precond: Any
) -> Problem:
    """The problem that the arguments describe."""
    # (Of a plain function, isinstance alone would take 50 microseconds.)
    if not (hasattr(fun, "value_and_gradient") and isinstance(fun, Problem)):
        if hasattr(fun, "named_parameters"):
            raise TypeError(
                f"fun is a torch module ({type(fun).__name__}), not its loss: "
                "ksdmin.minimize(ksdmin.from_torch(net, loss, (X, y)))"
            )
        return as_problem(fun, args, jac, hess, hessp, subsets, precond)
    beside = {"jac": jac, "hess": hess, "hessp": hessp, "precond": precond}
    given = [name for name, value in beside.items() if value is not None]
    given += [] if isinstance(args, tuple) and not args else ["args"]
    if given:
        raise ValueError(
            f"{', '.join(given)} beside a problem object, which brings its own: leave out"
        )
    return fun


def bounds_by_name(problem: Any, bounds: Any) -> Any:
    """The bounds; those of parameters by name become bounds of the flat vector."""
    if not isinstance(bounds, Mapping):
        return bounds
    if not hasattr(problem, "named_bounds"):
        raise TypeError(
            "bounds by name are for problems of from_torch, from_jax and from_autograd, whose "
            "parameters have names: pass a pair (low, high) for each variable"
        )
    return problem.named_bounds(bounds)


def start_point(problem: Problem, x0: Any) -> Array:
    """Where to start: `x0`, or the problem's own."""
    own = getattr(problem, "x0", None)
    if x0 is None and own is None:
        raise TypeError("x0 is missing, and the problem does not bring its own")
    return as_vector(own) if x0 is None else rounded_like(own, as_vector(x0))


def resolve_subsets(problem: Problem, subsets: Any) -> Subsets:
    """The sets to sample: the caller's, the problem's own, or everything at once."""
    own = getattr(problem, "subsets", None)
    if isinstance(problem, FunctionProblem) and own is None and subsets is not None:
        raise ValueError(
            "subsets= beside a problem whose functions take no idx: give subsets to as_problem"
        )
    if subsets is None:
        return PLAIN if own is None else as_subsets(own)
    sets = as_subsets(subsets)
    if own is None:
        return sets
    n = as_subsets(own).n
    if n is not None and sets.n is not None and sets.n != n:
        raise ValueError(
            f"subsets: {sets.n} samples, but the problem has {n}: leave subsets out, or pass "
            f"ksdmin.Subsets({n}, ...)"
        )
    return as_subsets(own).adopting(sets)
