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
from ksdmin._problem.entry import bounds_by_name, problem_of, resolve_subsets, start_point
from ksdmin._problem.protocol import Problem
from ksdmin._solver import METHODS, Solver, differentiated

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
        ``fun(x, *args) -> float``. With `subsets`: ``fun(x, idx, *args)``, the mean over the
        samples `idx`, which is ``slice(None)`` for all of them, otherwise a sorted array of
        indices from 0 to N - 1. A problem object (see :func:`as_problem`) has its own derivatives.
    x0 : array, optional
        The start: a numpy array, a torch tensor or a jax array of float32 or float64. The run
        keeps its namespace, dtype and device. A problem object may have its own start.
    args : tuple, optional
        Extra arguments of `fun` and its derivatives.
    method : str or callable, optional
        ``"ksd"``; ``"hf"``, Martens' Hessian-free method; or any of SciPy's methods, for the same
        problem (with subsets: on all samples).
    jac : callable, bool, '2-point', '3-point', 'cs', optional
        ``jac(x, *args)`` or ``jac(x, idx, *args)``. True: `fun` returns (value, gradient). With
        none of `jac`, `hess` and `hessp`: torch differentiates a function of a tensor x0, if its
        value has a graph (up to three calls find that out); jax differentiates a function of a
        jax array, if it can trace it; other functions have finite differences.
    hess : callable, '2-point', '3-point', 'cs', optional
        Returns the Hessian: dense, sparse or a LinearOperator. With a scheme, products are
        differences of the gradient; 'cs' means '2-point', since gradients are real.
    hessp : callable, optional
        ``hessp(x, p, *args)`` or ``hessp(x, p, idx, *args)``, the product of the Hessian with p.
        Without `hess` and `hessp`, products are differences of gradients.
    bounds : Bounds, sequence of pairs or mapping, optional
        ``lower <= x <= upper``; None in a pair means no bound. Nothing is evaluated outside. For
        problems of :func:`from_torch`, :func:`from_jax` and :func:`from_autograd` also by name,
        ``{"encoder": (0, None), "encoder.0.bias": (None, None)}``. A name is a path of names, keys
        and positions, joined by dots. It stands for a parameter, or for all beneath it; the
        longest matching path counts. A limit is a number, or an array that fits the parameter.
    constraints : optional
        For SciPy's methods only.
    tol : float, optional
        The same as the option gtol.
    callback : callable, optional
        ``callback(xk)`` or ``callback(intermediate_result=...)`` after each iteration;
        StopIteration ends the run.
    options : mapping, Options or HFOptions, optional
        See :class:`Options` for "ksd", :class:`HFOptions` for "hf". ``ksdmin.PAPER`` selects the
        algorithm of the paper.
    subsets : int, Subsets, callable or iterable, optional
        The number of samples, or how to sample them: see :class:`Subsets`.
    precond : array or callable, optional
        A diagonal that approximates the diagonal of the Hessian: see :func:`as_problem`.
    rng : None, int, Generator, ..., optional
        The seed or generator that draws the subsets, as in :func:`numpy.random.default_rng`. It
        has no effect on SciPy's methods, which use all samples.

    Returns
    -------
    OptimizeResult
        With x, fun, jac, nit, nfev, njev, nhev, status, success, message and history. `fun` and
        `jac` are the value and the gradient at `x` over all samples. `success` is True only if the
        test that `message` names holds there.

    See Also
    --------
    as_problem : a function, or residuals, as a problem object
    from_torch, from_jax, from_autograd : models and functions, differentiated
    Solver : the same run, one iteration at a time
    resume : continue a run that was saved
    ksd : the same as a `method` of :func:`scipy.optimize.minimize`
    covariance : standard errors at the minimum

    Notes
    -----
    An iteration of "ksd" [1]_ takes the gradient, then products of the curvature with up to K
    vectors, which span a Krylov subspace, and minimises the function itself within that subspace
    by BFGS. A product counts as two gradients; without `hessp` and `hess` it is one more gradient.
    When a run has learnt enough about the curvature, steps without products follow. With `subsets`
    the products and the search use small sets of samples, which grow as the run needs it. See
    :doc:`/how`.

    *Memory.* A run keeps up to K + 90 vectors like x on samples, and 2 K + 95 if every set is the
    whole; 80 fewer with ``pairs=0``. K is at most 20 on samples (40 for nets with many samples),
    otherwise 100. The options `krylov_dim` and `memory_budget` bound it.

    *The end of a run.* It ends with success when the largest magnitude in the gradient over all
    samples is at most `gtol`. (With bounds, only the variables that are free to move count.) The
    option `gtol_rel` adds a test relative to the first gradient; `ftol`, `xtol` and `fmin` add
    tests of the value and of the step. `message` names the test that held, or says why the run
    ended. `status` is 0 for the tests of the gradient.

    *A wrong gradient.* One more value at x0 compares `jac` with `fun`. If they contradict each
    other, there is a RuntimeWarning.

    *Interruption.* Ctrl-C ends a run after the current evaluation, and the result is the best point
    so far. An exception of the user's functions passes; its attribute ``ksdmin_result`` is the
    result so far.

    References
    ----------
    .. [1] O. Vinyals and D. Povey, "Krylov Subspace Descent for Deep Learning", AISTATS 2012,
       arXiv:1111.4259.
    .. [2] J. Martens, "Deep learning via Hessian-free optimization", ICML 2010 (method "hf").

    Examples
    --------
    A function and its gradient, as with SciPy:

    >>> import numpy as np
    >>> import ksdmin
    >>> from scipy.optimize import rosen, rosen_der, rosen_hess_prod
    >>> res = ksdmin.minimize(rosen, [-1.2, 1.0], jac=rosen_der)
    >>> res.success, res.x.round(4).tolist()
    (True, [1.0, 1.0])

    Exact products with the Hessian, and a smaller gradient:

    >>> res = ksdmin.minimize(rosen, [-1.2, 1.0], jac=rosen_der, hessp=rosen_hess_prod, tol=1e-10)
    >>> bool(abs(res.jac).max() <= 1e-10)
    True

    Bounds. Nothing is evaluated outside of them:

    >>> res = ksdmin.minimize(rosen, [0.0, 0.0], jac=rosen_der, bounds=[(None, 0.5), (None, None)])
    >>> res.x.round(4).tolist()
    [0.5, 0.25]

    A mean over samples. The functions take the samples `idx`:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 3))
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> def fun(w, idx):
    ...     return np.mean((X[idx] @ w - y[idx]) ** 2) / 2
    >>> def jac(w, idx):
    ...     return X[idx].T @ (X[idx] @ w - y[idx]) / len(y[idx])
    >>> res = ksdmin.minimize(fun, np.zeros(3), jac=jac, subsets=1000, rng=0)
    >>> res.x.round(3).tolist()
    [1.0, -2.0, 0.5]

    A callback that ends the run:

    >>> def callback(intermediate_result):
    ...     if intermediate_result.fun < 1e-2:
    ...         raise StopIteration
    >>> res = ksdmin.minimize(rosen, [-1.2, 1.0], jac=rosen_der, callback=callback)
    >>> ksdmin.Status(res.status).name, res.fun < 1e-2
    ('CALLBACK', True)

    Another method on the same problem, by one word:

    >>> ksdmin.minimize(fun, np.zeros(3), jac=jac, subsets=1000, method="L-BFGS-B").success
    True
    """
    name = "" if callable(method) else str(method or "ksd").lower()
    if name in METHODS:
        return Solver(
            fun, x0, args, name, jac, hess, hessp, bounds, constraints, tol, callback, options,
            subsets=subsets, precond=precond, rng=rng,
        )._loop.to_the_end()  # fmt: skip
    if not callable(method) and name not in SCIPY_METHODS:
        hint = nearest(name, [*METHODS, *SCIPY_METHODS])
        raise ValueError(f"Unknown solver {method}{hint}")
    if precond is not None:
        raise ValueError(f"precond= is for methods 'ksd' and 'hf', not {method!r}")
    if isinstance(options, MethodOptions):
        raise TypeError(f"options: SciPy's methods take a mapping, not {type(options).__name__}")
    bounds = bounds_by_name(fun, bounds)
    of_numpy = x0 is not None and (not is_array_api_obj(x0) or is_numpy_array(x0))
    if not isinstance(fun, Problem) and subsets is None and of_numpy:
        return scipy.optimize.minimize(
            fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options
        )
    problem = problem_of(fun, args, jac, hess, hessp, subsets, None)
    if jac is hess is hessp is None:
        problem = differentiated(problem, fun, x0, args, None, bounds)
    asked = {"constraints": constraints, "tol": tol, "callback": callback, "options": options}
    return delegate(problem, x0, subsets, method=method, bounds=bounds, **asked)


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

    Its own arguments go into SciPy's ``options``: those of :class:`Options`, and `subsets`,
    `precond` and `rng` as in :func:`ksdmin.minimize`. Unlike there, Ctrl-C raises
    KeyboardInterrupt, so that it also ends a basinhopping around the run.

    See Also
    --------
    minimize : the same run, called directly; all arguments are explained there

    Notes
    -----
    SciPy does not pass ``jac="3-point"`` on to methods that are functions. The run then begins with
    2-point differences, as with ``jac=None``.

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
    return Solver(
        fun, x0, args, "ksd", jac, hess, hessp, bounds, constraints, tol, callback, options,
        subsets=subsets, precond=precond, rng=rng,
    )._loop.to_the_end(catch_interrupt=False)  # fmt: skip


def delegate(problem: Problem, x0: Any, subsets: Any, **kwargs: Any) -> OptimizeResult:
    """Pass a problem to one of SciPy's methods, as numpy callables on the whole set."""
    sets = resolve_subsets(problem, subsets)
    if sets.full is None:
        raise ValueError(
            "SciPy's methods need the whole set, and your own subsets do not define it: pass "
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
    for field in ("x", "jac"):  # back to the problem's namespace and device
        if isinstance(res.get(field), np.ndarray) and res[field].shape == (space.n,):
            res[field] = space.to_device(res[field])
    return res
