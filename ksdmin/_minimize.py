"""The entry points: `minimize`, which mirrors SciPy's, and `ksd`, which plugs into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.optimize
from array_api_compat import is_array_api_obj, is_numpy_array
from scipy.optimize import OptimizeResult

from ksdmin._options import MethodOptions, nearest
from ksdmin._problem.arrays import Space, to_host
from ksdmin._problem.counting import as_counting
from ksdmin._problem.protocol import Problem
from ksdmin._solver.arguments import described, differentiated, problem_of
from ksdmin._solver.methods import METHODS
from ksdmin._solver.setup import resolve_subsets, start_point

TAKES_HESSP = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
NEEDS_HESS = {"dogleg", "trust-exact"}
NO_GRADIENT = {"nelder-mead", "powell", "cobyla", "cobyqa"}
OTHERS = {"cg", "bfgs", "l-bfgs-b", "tnc", "slsqp", "_custom"}
SCIPY_METHODS = TAKES_HESSP | NEEDS_HESS | NO_GRADIENT | OTHERS


def minimize(
    fun: Any,
    x0: Any = None,
    args: Any = (),
    method: str | Callable[..., Any] | None = "ksd",
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | MethodOptions | None = None,
    *,
    subsets: Any = None,
    precond: Any = None,
    rng: Any = None,
) -> OptimizeResult:
    """Minimise a function of many variables, or a sum of losses over many samples.

    The order and meaning of the arguments are those of :func:`scipy.optimize.minimize`.

    Parameters
    ----------
    fun : callable or problem object
        ``fun(x, *args) -> float``; with `subsets` ``fun(x, idx, *args)``, the mean over the
        samples `idx`. A problem object (see :func:`as_problem`) brings its own derivatives.
    x0 : array, optional
        Where to start: a numpy array, a torch tensor or a jax array of float32 or float64; the
        run stays in its namespace, dtype and device. A problem object may bring its own.
    args : tuple, optional
        Extra arguments of `fun` and its derivatives.
    method : str or callable, optional
        ``"ksd"``; ``"hf"``, Martens' Hessian-free method on the same problem; or any method of
        SciPy's, which is handed the same problem (with subsets: on the whole set).
    jac : callable, bool, '2-point', '3-point', 'cs', optional
        ``jac(x, *args)`` or ``jac(x, idx, *args)``; True: `fun` returns (value, gradient). With
        none of `jac`, `hess` and `hessp`, a torch function of a tensor x0 is differentiated by
        torch, if its value carries a graph (it is called up to three times to see); others by
        differences.
    hess : callable, '2-point', '3-point', 'cs', optional
        Gives the Hessian: dense, sparse or a LinearOperator. A scheme: products by differences
        of the gradient; 'cs' is taken as '2-point', as gradients are real.
    hessp : callable, optional
        ``hessp(x, p, *args)`` or ``hessp(x, p, idx, *args)``. With neither, gradients are
        differenced along the Krylov directions.
    bounds : Bounds or sequence of pairs, optional
        ``lower <= x <= upper``; None in a pair is no bound. Nothing is evaluated outside.
    constraints : optional
        For SciPy's methods; "ksd" and "hf" refuse them.
    tol : float, optional
        The same as the option gtol.
    callback : callable, optional
        ``callback(xk)`` or ``callback(intermediate_result=...)`` after each iteration;
        StopIteration ends the run.
    options : mapping, Options or HFOptions, optional
        For "ksd" see :class:`Options`, for "hf" :class:`HFOptions`. ``ksdmin.PAPER`` makes "ksd"
        the paper's algorithm.
    subsets : int, Subsets, callable or iterable, optional
        The number of samples, or how to sample them: see :class:`Subsets`.
    precond : array or callable, optional
        A diagonal that roughly approximates that of the Hessian: see :func:`as_problem`.
    rng : None, int, Generator, ..., optional
        Where the draws of subsets come from, as in :func:`numpy.random.default_rng`. Without
        effect on SciPy's methods, which see the whole set: they are compared by one changed word.

    Returns
    -------
    OptimizeResult
        With x, fun, jac, nit, nfev, njev, nhev, status, success, message and history. `fun` and
        `jac` belong to `x` and the whole set. `success` is True only where the stated test holds
        there.

    Examples
    --------
    >>> import ksdmin
    >>> from scipy.optimize import rosen, rosen_der, rosen_hess_prod
    >>> res = ksdmin.minimize(rosen, [-1.2, 1.0], jac=rosen_der, hessp=rosen_hess_prod)
    >>> res.success, res.x.round(4).tolist()
    (True, [1.0, 1.0])
    """
    name = "" if callable(method) else str(method or "ksd").lower()
    if name in METHODS:
        return described(
            fun, x0, args, name, jac, hess, hessp, bounds, constraints, tol, callback, options,
            subsets, precond, rng,
        ).to_the_end()  # fmt: skip
    if not callable(method) and name not in SCIPY_METHODS:
        hint = nearest(name, [*METHODS, *SCIPY_METHODS])
        raise ValueError(f"Unknown solver {method}{hint}")
    if precond is not None:
        raise ValueError(f"precond= is for methods 'ksd' and 'hf', not {method!r}")
    if isinstance(options, MethodOptions):
        raise TypeError(f"options: SciPy's methods take a mapping, not {type(options).__name__}")
    if not isinstance(fun, Problem) and subsets is None and _is_scipys(x0):
        return scipy.optimize.minimize(
            fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options
        )
    problem = problem_of(fun, args, jac, hess, hessp, subsets, None)
    if jac is hess is hessp is None:
        problem = differentiated(problem, fun, x0, args, None, bounds)
    return delegate(
        problem,
        x0,
        subsets,
        method=method,
        bounds=bounds,
        constraints=constraints,
        tol=tol,
        callback=callback,
        options=options,
    )


def ksd(
    fun: Any,
    x0: Any,
    args: Any = (),
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    tol: float | None = None,
    subsets: Any = None,
    precond: Any = None,
    rng: Any = None,
    **options: Any,
) -> OptimizeResult:
    """Krylov Subspace Descent as a `method` of :func:`scipy.optimize.minimize`.

    Everything that is particular to it goes into SciPy's ``options``: those of
    :class:`Options`, and `subsets`, `precond` and `rng` as in :func:`ksdmin.minimize`. Unlike
    there, Ctrl-C passes through: within basinhopping a swallowed one would run on.

    Examples
    --------
    >>> import ksdmin
    >>> from scipy.optimize import minimize, rosen, rosen_der
    >>> res = minimize(rosen, [-1.2, 1.0], jac=rosen_der, method=ksdmin.ksd, tol=1e-8)
    >>> res.success, res.x.round(6).tolist()
    (True, [1.0, 1.0])
    """
    if type(fun).__name__ == "MemoizeJac" and jac == fun.derivative:
        # jac=True: SciPy has wrapped fun in a cache that compares x alone, not the subset.
        fun, jac = fun.fun, True
    return described(
        fun, x0, args, "ksd", jac, hess, hessp, bounds, constraints, tol, callback, options,
        subsets, precond, rng,
    ).to_the_end(catch_interrupt=False)  # fmt: skip


def delegate(problem: Problem, x0: Any, subsets: Any, **kwargs: Any) -> OptimizeResult:
    """Hand a problem to one of SciPy's methods: numpy callables on the whole set."""
    sets = resolve_subsets(problem, subsets)
    if sets.full is None:
        raise ValueError(
            "SciPy's methods need the whole set, and your own subsets do not name it: pass "
            "subsets=ksdmin.Subsets(sets, full=...)"
        )
    x0 = start_point(problem, x0)
    space, full, host_x0 = Space(x0), sets.full, to_host(x0)
    problem = as_counting(problem, space)

    def fun(x: Any) -> Any:
        value, g = problem.value_and_gradient(space.to_device(x), full)
        return value, to_host(g)

    def value(x: Any) -> float:
        return problem.value(space.to_device(x), full)

    def hessp(x: Any, p: Any) -> Any:
        return to_host(problem.curvature(space.to_device(x), full)(space.to_device(p)))

    def hess(x: Any) -> Any:
        product = problem.curvature(space.to_device(x), full)
        return np.array([to_host(product(space.unit(i))) for i in range(space.n)])

    name = str(kwargs["method"]).lower()
    if name in NO_GRADIENT:
        res = scipy.optimize.minimize(value, host_x0, **kwargs)
    else:
        second_order: dict[str, Any] = {"hess": hess} if name in NEEDS_HESS else {}
        if callable(kwargs["method"]) or name in TAKES_HESSP:
            second_order = {"hessp": hessp}
        res = scipy.optimize.minimize(fun, host_x0, jac=True, **second_order, **kwargs)
    for field in ("x", "jac"):  # back to where the problem lives
        if isinstance(res.get(field), np.ndarray) and res[field].shape == (space.n,):
            res[field] = space.to_device(res[field])
    return res


def _is_scipys(x0: Any) -> bool:
    return x0 is not None and (not is_array_api_obj(x0) or is_numpy_array(x0))
