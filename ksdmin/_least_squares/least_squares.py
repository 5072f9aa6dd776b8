"""`least_squares`, which mirrors SciPy's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize import Bounds, OptimizeResult
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from ksdmin._adapters.array_function import array_function
from ksdmin._ksd.trust_region import SingularValues
from ksdmin._least_squares.arrays import (
    bounds_of,
    in_form,
    jacobian_of,
    on_host,
    pair_of,
    shown_in_form,
)
from ksdmin._options import nearest
from ksdmin._problem.arrays import EPS, Small
from ksdmin._problem.box import as_limits
from ksdmin._problem.entry import as_problem
from ksdmin._problem.residuals import ResidualProblem
from ksdmin._result import Result, Status
from ksdmin._run.fit_tests import FTOL, GTOL, XTOL
from ksdmin._run.loop import Loop
from ksdmin._run.observer import takes_result
from ksdmin._solver import Solver

SCIPY_METHODS = ("trf", "dogbox", "lm")
# SciPy's codes; any other end of a run is NOT_CONVERGED, and the message says why.
CODES = {
    Status.CONVERGED: 1,
    Status.FTOL: 2,
    Status.XTOL: 3,
    Status.MAXFUN: 0,
    Status.MAXITER: 0,
    Status.CALLBACK: -2,
}
NOT_CONVERGED = -3
NAMES = {1: "gtol", 2: "ftol", 3: "xtol", 0: "max_nfev", -2: "callback", NOT_CONVERGED: ""}
MAX_COVARIANCE = 1000  # unknowns: a matrix of 8 MB


class LeastSquaresResult(Result):
    """A result with SciPy's codes for its status."""

    def _status_name(self) -> str:
        name = NAMES.get(self.get("status"))
        return f"({name})" if name else ""


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: Any = "2-point",
    bounds: Any = (-np.inf, np.inf),
    method: str = "ksd",
    ftol: float | None = FTOL,
    xtol: float | None = XTOL,
    gtol: float | None = GTOL,
    x_scale: Any = None,
    loss: Any = "linear",
    f_scale: float = 1.0,
    diff_step: Any = None,
    tr_solver: str | None = None,
    tr_options: Mapping[str, Any] | None = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    callback: Callable[..., Any] | None = None,
    workers: Any = None,
) -> OptimizeResult:
    """Minimise half the sum of squared residuals, or of robust losses of them, within bounds.

    The order and meaning of the arguments are those of :func:`scipy.optimize.least_squares`.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args, **kwargs)`` returns the vector of the m residuals at x, an array of n
        variables. There may be fewer residuals than variables.
    x0 : array, or tree of arrays of torch or jax
        Where to start. Besides numpy arrays: a torch tensor, a jax array, dicts, lists and tuples
        of these (for jax any tree), or a torch module. `fun` gets x in this form, with its device
        and dtype, and returns a tensor or a tree of tensors. ``res.x`` has the same form (for a
        module it is a dict by name).
    jac : callable, '2-point', '3-point', 'cs', optional
        ``jac(x, *args, **kwargs)`` returns the Jacobian, of shape (m, n): an array, a sparse matrix
        or a LinearOperator. A scheme: finite differences; '2-point' changes to '3-point' when its
        error begins to hide the steps. If x0 is of torch or jax and `jac` is not given, autodiff
        computes it, if it can differentiate `fun` (up to three calls find that out).
    bounds : pair of arrays, Bounds, mapping or None, optional
        ``(lower, upper)``, each an array or a number for all variables. Nothing is evaluated
        outside. A variable whose bounds are equal is a constant. For parts of an x0 of torch or jax
        also by name, ``{"rate": (0, None)}``, as in :func:`minimize`.
    method : {'ksd', 'trf', 'dogbox', 'lm'}, optional
        'ksd', or a method of SciPy, which gets the same arguments.
    ftol, xtol, gtol : float or None, optional
        Tests of convergence, which do not depend on units. A run ends with success when the last
        step lowered the cost by at most ``ftol * cost``, and the model predicts no more (status 2);
        when it changed the variables, in the scale of the columns of the Jacobian, by at most
        `xtol` times their size (3); or when no cosine between the residuals and a column is larger
        than `gtol` (1). None turns a test off. The defaults are smaller than SciPy's, and give six
        digits or more of each variable: near the solution steps cost little. With SciPy's methods
        they have SciPy's meaning.
    x_scale : array or 'jac', optional
        The characteristic scale of each variable. By default, and for 'jac', it follows from the
        columns of the Jacobian.
    loss : str or callable, optional
        'linear', 'soft_l1', 'huber', 'cauchy', 'arctan', or ``rho(z)`` of squared residuals, which
        returns values, first and second derivatives, shape (3, m).
    f_scale : float, optional
        The size beyond which a residual counts as an outlier.
    diff_step : float or array, optional
        The relative steps of finite differences.
    tr_solver, tr_options : optional
        For SciPy's methods; without effect on 'ksd'.
    jac_sparsity : array or sparse matrix, optional
        The entries of the Jacobian that may be nonzero, for differences of several columns at once.
    max_nfev : int, optional
        The largest number of evaluations of `fun`, without those for differences.
    verbose : {0, 1, 2}, optional
        1 prints a line at the end, 2 also a line for each iteration.
    args, kwargs : tuple, mapping, optional
        Extra arguments of `fun` and `jac`.
    callback : callable, optional
        ``callback(x)`` or ``callback(intermediate_result=...)`` after each iteration;
        StopIteration ends the run.
    workers : optional
        For SciPy's methods; 'ksd' refuses it.

    Returns
    -------
    OptimizeResult
        The fields of SciPy's result, and more:

        - x, in the form of x0; all other fields are numpy, with the variables as one vector;
        - cost, fun (the residuals), jac, grad, optimality (the largest magnitude in the
          gradient of the variables that may move), active_mask, nfev, njev, status, message,
          success. As in SciPy, `jac` includes the weights of a robust loss;
        - covariance of the estimates, for residuals with equal and unknown variance:
          ``2 cost / (m - n) * inv(J.T @ J)``; infinite if the data do not determine them, NaN
          for a variable on a bound, 0 for one whose bounds are equal; None for more than 1000
          variables, or a LinearOperator;
        - standard_errors: the square roots of its diagonal, or None;
        - nit, kinds, history: as in :func:`minimize`.

        `status` is -3 if a run ended without convergence for another reason than `max_nfev` (0)
        or `callback` (-2), such as rounding; `message` names the reason.

    See Also
    --------
    curve_fit : the same for a function of data
    minimize : takes the same problem as ``as_problem(residuals=...)``, with all options
    covariance : standard errors of any minimum

    Notes
    -----
    With up to 300 variables, steps are Levenberg-Marquardt steps in a trust region, as in MINPACK.
    They are corrected by the residuals at trial points, and use an estimate of second derivatives
    if residuals stay large. With more variables they are those of :func:`minimize`.

    Examples
    --------
    >>> import numpy as np, ksdmin
    >>> t = np.linspace(0, 3, 20)
    >>> y = 2.5 * np.exp(-1.3 * t) + 0.01 * np.sin(10 * t)
    >>> res = ksdmin.least_squares(lambda x: x[0] * np.exp(-x[1] * t) - y, [1.0, 1.0])
    >>> res.success, res.x.round(2).tolist()
    (True, [2.5, 1.3])
    >>> res.standard_errors.round(3).tolist()
    [0.006, 0.005]
    """
    bounds = (-np.inf, np.inf) if bounds is None else bounds
    of_arrays = array_function(fun, x0, args, kwargs)
    if of_arrays is not None:
        res = least_squares(
            of_arrays, of_arrays.x0,
            jacobian_of(of_arrays, jac, bounds, args, kwargs), bounds_of(of_arrays, bounds), method,
            ftol, xtol, gtol, on_host(x_scale), loss, f_scale, on_host(diff_step), tr_solver,
            tr_options, jac_sparsity, max_nfev, verbose,
            callback=shown_in_form(callback, of_arrays.given), workers=workers,
        )  # fmt: skip
        return in_form(res, of_arrays.given)
    if method != "ksd":
        if method not in SCIPY_METHODS:
            known = ("ksd", *SCIPY_METHODS)
            raise ValueError(f"method={method!r}{nearest(str(method), known)}: one of {known}")
        newer = {"callback": callback, "workers": workers}  # than in some versions of SciPy
        return scipy.optimize.least_squares(
            fun, x0, jac, bounds, method, ftol, xtol, gtol,
            1.0 if x_scale is None and method != "lm" else "jac" if x_scale is None else x_scale,
            loss, f_scale, diff_step, tr_solver, tr_options or {}, jac_sparsity, max_nfev, verbose,
            args, kwargs or {}, **{name: one for name, one in newer.items() if one is not None},
        )  # fmt: skip
    _check_arguments(tr_solver, max_nfev, verbose, callback, workers)
    x0 = _start(x0)
    lower, upper = limits_of(bounds, x0)
    tolerances = _tolerances(ftol, xtol, gtol)
    if kwargs:
        fun, jac = (partial(f, **kwargs) if callable(f) else f for f in (fun, jac))
    problem = as_problem(
        residuals=fun,
        args=tuple(args) if isinstance(args, list) else args,
        jac=None if isinstance(jac, str) and jac == "2-point" else jac,
        loss=loss,
        f_scale=f_scale,
    )
    assert isinstance(problem, ResidualProblem)
    steps = None if diff_step is None else _of_each("diff_step", np.abs(diff_step), x0)
    found = x_scale is None or (isinstance(x_scale, str) and x_scale == "jac")  # by the run
    scale = None if found else np.asarray(1 / _of_each("x_scale", x_scale, x0))
    problem = problem.as_least_squares(x0, steps, jac_sparsity, scale)
    options = {"maxfun": max_nfev, **tolerances}
    if max_nfev is not None:  # the only limit, then
        options["maxiter"] = math.inf
    free = not (np.isfinite(lower) | np.isfinite(upper)).any()
    limits = None if free else Bounds(lower, upper)
    watched = _watched(callback, verbose, lambda: solver._loop)
    solver = Solver(problem, x0, bounds=limits, callback=watched, options=options)
    loop, result = solver._loop, solver._loop.to_the_end()
    res = _result(loop, result, lower, upper)
    if verbose:
        print(res.message)
        print(
            f"Function evaluations {res.nfev}, initial cost {res.history[0].value:.4e}, "
            f"final cost {res.cost:.4e}, first-order optimality {res.optimality:.2e}."
        )
    return res


def _check_arguments(
    tr_solver: Any, max_nfev: Any, verbose: Any, callback: Any, workers: Any
) -> None:
    if tr_solver not in (None, "exact", "lsmr"):
        raise ValueError(f"tr_solver={tr_solver!r}: expected None, 'exact' or 'lsmr'")
    if max_nfev is not None and (
        isinstance(max_nfev, bool) or not isinstance(max_nfev, (int, float, np.number))
    ):
        raise TypeError(f"max_nfev={max_nfev!r}: expected a positive number, or None")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is a {type(callback).__name__}: expected a callable, or None")
    if max_nfev is not None and not max_nfev > 0:
        raise ValueError(f"max_nfev={max_nfev!r}: expected a positive number, or None")
    if verbose not in (0, 1, 2):
        raise ValueError(f"verbose={verbose!r}: expected 0, 1 or 2")
    if workers not in (None, 1):
        raise ValueError(
            "workers= is for SciPy's methods: with method='ksd' pass jac, or let fun do its work "
            "in parallel"
        )


def _start(x0: Any) -> Small:
    if callable(x0):
        raise TypeError("x0 is a function: expected a vector. The function comes first: fun, x0")
    if np.iscomplexobj(x0):
        raise ValueError("x0 must be real")
    if isinstance(x0, Mapping):
        raise TypeError(
            "x0 is a mapping of numbers: expected a vector; tensors of torch and arrays of jax may "
            "be in a dict"
        )
    start = np.atleast_1d(np.asarray(x0, dtype=np.float64))
    if start.ndim > 1:
        raise ValueError(f"x0 has shape {start.shape}: expected a vector")
    return start


def limits_of(bounds: Any, x0: Small) -> tuple[Small, Small]:
    """Lower and upper bounds of each variable; x0 has to lie between them."""
    lower, upper = pair_of(bounds)
    for limit in (lower, upper):
        if np.ndim(limit) and np.shape(limit) != x0.shape:
            raise ValueError(f"bounds: {np.shape(limit)} limits do not fit {len(x0)} variables")
    lower, upper = as_limits(lower, upper, len(x0))
    outside = (x0 < lower) | (x0 > upper)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"x0 lies outside the bounds: x0[{i}] is {x0[i]}; start within")
    return lower, upper


def _tolerances(ftol: float | None, xtol: float | None, gtol: float | None) -> dict[str, float]:
    given = {"ftol": ftol, "xtol": xtol, "gtol": gtol}
    tolerances = {name: 0.0 if tol is None else float(tol) for name, tol in given.items()}
    for name, tol in tolerances.items():
        if given[name] is not None and tol < EPS:
            warnings.warn(
                f"{name}={tol:.2g} is below rounding: it turns the test off", stacklevel=3
            )
    if max(tolerances.values()) < EPS:
        raise ValueError("ftol, xtol and gtol: at least one must be above rounding, 2.2e-16")
    return tolerances


def _of_each(name: str, value: Any, x0: Small) -> Small:
    """A positive number for each variable, from an array or from one number for all."""
    try:
        each = np.broadcast_to(np.asarray(value, dtype=np.float64), x0.shape)
        valid = bool(((each > 0) & (each < np.inf)).all())
    except (TypeError, ValueError):
        valid = False
    if not valid or np.iscomplexobj(value):
        also = "'jac', or " if name == "x_scale" else ""
        raise ValueError(
            f"{name}={value!r}: expected {also}a positive number, or one for each variable"
        )
    return each


def _watched(
    callback: Callable[..., Any] | None, verbose: int, loop: Callable[[], Loop]
) -> Callable[..., Any] | None:
    """A callback that calls the user's as SciPy does, and prints lines; None if neither is wanted.

    `loop` gives the run.
    """
    if callback is None and verbose < 2:
        return None
    by_keyword = callback is not None and takes_result(callback)

    def see(intermediate_result: OptimizeResult) -> None:
        shown = intermediate_result
        if verbose == 2:
            record = shown.record
            print(
                f"{record.iteration:6d} {record.nfev:6d} cost {record.value:.4e} step "
                f"{record.step_norm:.2e} optimality {record.gradient_norm:.2e}"
            )
        if callback is None:
            return
        if not by_keyword:
            callback(shown.x)
            return
        state = loop().state
        assert state is not None
        problem: Any = state.ledger.problem
        r = problem.residuals(state.here.x, state.here.idx).copy()
        seen = {"x": shown.x, "fun": r, "cost": shown.fun, "grad": shown.jac}
        counts = {name: shown[name] for name in ("nit", "nfev", "njev")}
        callback(intermediate_result=OptimizeResult(**seen, **counts))

    return see


def _result(loop: Loop, result: OptimizeResult, lower: Small, upper: Small) -> LeastSquaresResult:
    """SciPy's fields, and ours, for a run that has ended."""
    assert loop.state is not None
    here, problem = loop.state.here, loop.state.ledger.problem
    assert isinstance(problem, ResidualProblem)
    x = here.x if np.array_equal(here.x, result.x) else result.x  # it remembers that one
    if not np.isfinite(result.fun) and result.nit == 0:
        raise ValueError(f"fun gives residuals at x0 that are not finite: {result.message}")
    r, J = problem.residuals(x, here.idx), problem.curved_jacobian(x, here.idx)
    mask = np.where(result.x <= lower, -1, np.where(result.x >= upper, 1, 0))
    accuracy = problem.traits.gradient_accuracy
    error = 10 * EPS**accuracy if accuracy < 1 else EPS  # of J
    covariance = _covariance(J, result.fun, mask, lower == upper, error)
    status = CODES.get(Status(result.status), NOT_CONVERGED)
    found = LeastSquaresResult(
        x=result.x,
        cost=result.fun,
        fun=r.copy(),
        jac=J.copy() if isinstance(J, np.ndarray) else J,
        grad=result.jac,
        optimality=float(loop.run.stationarity(x, result.jac)),
        active_mask=mask,
        nfev=result.nfev,
        njev=result.njev,
        nit=result.nit,
        status=status,
        success=status > 0,
        message=result.message,
        covariance=covariance,
        standard_errors=None if covariance is None else np.sqrt(np.diag(covariance)),
        kinds=result.kinds,
        history=result.history,
    )
    origin = result.origin() if isinstance(result, Result) else None
    if origin is not None:
        found.come_from(origin, keep=True)
    return found


def _covariance(J: Any, cost: float, mask: Any, fixed: Any, error: float) -> Small | None:
    """2 cost / (m - n) * inv(J^T J), for the variables that are not on a bound."""
    n = J.shape[1]
    if n > MAX_COVARIANCE or isinstance(J, LinearOperator):
        return None
    own, free = J.toarray() if issparse(J) else J, np.flatnonzero(mask == 0)
    own, extra = own if len(free) == n else own[:, free], len(own) - len(free)
    inverse = inverse_gram(own, error) if extra > 0 and np.isfinite(own).all() else None
    covariance = np.full((n, n), np.nan)
    covariance[np.ix_(free, free)] = np.inf if inverse is None else 2 * cost / extra * inverse
    covariance[fixed, :] = covariance[:, fixed] = 0.0
    return covariance


def inverse_gram(J: Small, error: float = EPS) -> Small | None:
    """inv(J^T J), by singular values; None if columns are linearly dependent.

    `error` is the relative error of J.
    """
    if not J.size:
        return np.zeros((J.shape[1], J.shape[1]))
    lengths = np.sqrt(np.einsum("ij,ij->j", J, J))
    if not lengths.all():
        return None
    values = SingularValues(J / lengths)  # units must not decide
    s = values.s
    if J.shape[0] < J.shape[1] or s[-1] <= max(error, EPS * max(J.shape)) * s[0]:
        return None
    half = values.Vt.T / s / lengths[:, None]
    return np.asarray(half @ half.T)
