"""`curve_fit`, which mirrors SciPy's."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import OptimizeResult, OptimizeWarning

from ksdmin._adapters.array_function import first_array
from ksdmin._least_squares.arrays import model_on_host, on_host, pair_of
from ksdmin._least_squares.least_squares import inverse_gram, least_squares, limits_of
from ksdmin._problem.arrays import Small

# Arguments that SciPy's curve_fit passes to leastsq, and what to use instead here.
MINPACK_ONLY = {
    "epsfcn": "pass diff_step=sqrt(epsfcn)",
    "factor": "leave it out, as the first radius needs no factor",
    "diag": "pass x_scale=1 / diag",
    "col_deriv": "return derivatives by columns, shape (m, n)",
    "Dfun": "pass jac=",
}


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    **kwargs: Any,
) -> Any:
    """Fit a function to data by least squares: its parameters, and their covariance.

    The order and meaning of the arguments are those of :func:`scipy.optimize.curve_fit`.

    Parameters
    ----------
    f : callable
        ``f(xdata, *parameters)`` returns the model's values, as many as `ydata` has.
    xdata, ydata : array
        The data: `xdata` is passed to `f` (lists and tuples as arrays), `ydata` is a vector. If one
        of `xdata`, `ydata` and `p0` is a torch or jax array, `f` gets data and parameters as such
        arrays, in float64 (in jax if that is enabled), on the device of the data, and autodiff
        differentiates it.
    p0 : array, optional
        The start. By default 1 for each parameter of `f`, or a point within its bounds.
    sigma : array, optional
        The standard deviations of `ydata`, or their covariance matrix.
    absolute_sigma : bool, optional
        Whether `sigma` is in the units of `ydata`. If not, only its proportions count: it is scaled
        to match the variance of the residuals.
    check_finite : bool, optional
        Whether data that are not finite raise an error; by default True without `nan_policy`.
    bounds : pair of arrays, or Bounds, optional
        As in :func:`least_squares`.
    method : {'ksd', 'trf', 'dogbox', 'lm'}, optional
        As in :func:`least_squares`; 'ksd' by default.
    jac : callable or scheme, optional
        ``jac(xdata, *parameters)`` returns the derivatives of `f`, of shape (m, n); or a scheme of
        :func:`least_squares`.
    full_output : bool, optional
        Whether to return more.
    nan_policy : {'raise', 'omit'}, optional
        Whether NaNs in the data are an error, or such data are left out.
    **kwargs
        For :func:`least_squares`, such as `loss`, `x_scale`, `max_nfev` (or `maxfev`) and `ftol`.

    Returns
    -------
    popt : array
        The parameters; a torch or jax array if `p0` is one.
    pcov : array, (n, n)
        Their covariance; the square roots of its diagonal are the standard errors. Infinite if the
        data do not determine the parameters, zero for one whose bounds are equal.
    infodict, mesg, ier
        With `full_output`: a dictionary with `nfev` and `fvec`, a message why the run ended, and
        the status of :func:`least_squares`.

    Raises
    ------
    RuntimeError
        If the run does not converge; its attribute ``ksdmin_result`` is the result so far.

    Warns
    -----
    OptimizeWarning
        If the covariance cannot be estimated.

    See Also
    --------
    least_squares : for residuals of any kind, with more results

    Examples
    --------
    >>> import numpy as np, ksdmin
    >>> def decay(t, a, b):
    ...     return a * np.exp(-b * t)
    >>> t = np.linspace(0, 3, 20)
    >>> y = decay(t, 2.5, 1.3) + 0.01 * np.sin(10 * t)
    >>> popt, pcov = ksdmin.curve_fit(decay, t, y)
    >>> popt.round(2).tolist(), np.sqrt(np.diag(pcov)).round(3).tolist()
    ([2.5, 1.3], [0.006, 0.005])
    """
    bounds = (-np.inf, np.inf) if bounds is None else pair_of(bounds)
    like = first_array(xdata, ydata, p0)
    if like is not None:
        start = _start(f, on_host(p0), bounds)
        xdata, ydata, sigma = on_host(xdata), on_host(ydata), on_host(sigma)
        xdata, ydata, sigma = _data(xdata, ydata, sigma, check_finite, nan_policy)
        model, jac, in_library = model_on_host(f, jac, bounds, xdata, start, like)
        popt, *rest = curve_fit(
            model, xdata, ydata, start, sigma, absolute_sigma, False, tuple(map(on_host, bounds)),
            method, jac, full_output=full_output, **kwargs,
        )  # fmt: skip
        return (popt if first_array(p0) is None else in_library(popt), *rest)
    if method not in (None, "ksd"):
        return scipy.optimize.curve_fit(
            f, xdata, ydata, p0, sigma, absolute_sigma, check_finite, bounds, method, jac,
            full_output=full_output, nan_policy=nan_policy, **kwargs,
        )  # fmt: skip
    if "args" in kwargs:
        raise ValueError("args: f is called as f(xdata, *parameters); bind others by a lambda")
    for name in MINPACK_ONLY.keys() & kwargs.keys():
        raise TypeError(
            f"{name}= is an argument of MINPACK's: {MINPACK_ONLY[name]}, or method='lm'"
        )
    start = _start(f, p0, bounds)
    xdata, ydata, sigma = _data(xdata, ydata, sigma, check_finite, nan_policy)
    weigh = _weighing(sigma, ydata.size)
    maxfev = kwargs.pop("maxfev", None)
    if maxfev is not None and maxfev != 0:  # 0 is SciPy's default
        kwargs.setdefault("max_nfev", maxfev)
    residuals = _fitted(f, xdata, ydata, weigh)
    given = _fitted(jac, xdata, None, weigh) if callable(jac) else jac or "2-point"
    res = least_squares(residuals, start, jac=given, bounds=bounds, **kwargs)
    if not res.success:
        error = RuntimeError(f"Optimal parameters not found: {res.message}")
        error.ksdmin_result = res  # type: ignore[attr-defined]
        raise error
    lower, upper = limits_of(bounds, start)
    pcov = _covariance(res, absolute_sigma, np.flatnonzero(lower < upper))
    if full_output:
        return res.x, pcov, {"nfev": res.nfev, "fvec": res.fun}, res.message, res.status
    return res.x, pcov


def _start(f: Callable[..., Any], p0: Any, bounds: Any) -> Any:
    """The user's p0, or 1 for each parameter in the signature of `f`, within the bounds."""
    if p0 is not None:
        return np.atleast_1d(p0).ravel()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [p for p in inspect.signature(f).parameters.values() if p.kind in kinds]
    if len(named) < 2:
        raise ValueError("the signature of f names no parameters of the fit: pass p0")
    n = len(named) - 1
    limits = (np.asarray(limit, dtype=np.float64) for limit in bounds)
    lower, upper = (np.resize(limit, n) for limit in limits)
    start = np.ones(n)
    below, above = np.isfinite(lower), np.isfinite(upper)
    start = np.where(below & ~above, lower + 1, start)
    start = np.where(above & ~below, upper - 1, start)
    both = below & above
    start[both] = (lower[both] + upper[both]) / 2
    return start


def _data(
    xdata: Any, ydata: Any, sigma: Any, check_finite: bool | None, nan_policy: str | None
) -> tuple[Any, Small, Any]:
    """Data and sigma as arrays, without what `nan_policy` leaves out."""
    if nan_policy not in (None, "raise", "omit"):
        raise ValueError(f"nan_policy={nan_policy!r}: must be one of {{None, 'raise', 'omit'}}")
    checked = nan_policy is None if check_finite is None else check_finite
    ydata = _as_data("ydata", ydata, checked)
    if isinstance(xdata, (list, tuple, np.ndarray)):  # anything else is passed to f unchanged
        xdata = _as_data("xdata", xdata, checked)
    if not ydata.size:
        raise ValueError("ydata is empty")
    if nan_policy is None or checked:
        return xdata, ydata, sigma
    known = isinstance(xdata, np.ndarray)
    missing = np.isnan(ydata)
    if known:
        missing = missing | np.isnan(xdata).any(axis=tuple(range(xdata.ndim - 1)))
    if not missing.any():
        return xdata, ydata, sigma
    if nan_policy == "raise":
        raise ValueError("The input contains nan values: leave them out by nan_policy='omit'")
    if sigma is not None and np.ndim(sigma):
        sigma = np.asarray(sigma)[np.ix_(*(~missing,) * np.ndim(sigma))]
    return (xdata[..., ~missing] if known else xdata), ydata[~missing], sigma


def _as_data(name: str, data: Any, checked: bool) -> Small:
    if np.iscomplexobj(data):
        raise ValueError(
            f"{name} is complex: pass real and imaginary parts one after the other, as "
            f"np.concatenate([{name}.real, {name}.imag])"
        )
    values: Small = np.asarray(data, np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if checked and bad.size:
        at = tuple(int(i) for i in bad[0])
        place = ", ".join(map(str, at))
        raise ValueError(f"{name} must not contain infs or NaNs: {name}[{place}] is {values[at]}")
    return values


def _weighing(sigma: Any, m: int) -> Callable[[Small], Small]:
    """A function that divides residuals, or rows of a Jacobian, by their errors."""
    if sigma is None:
        return lambda u: u
    sigma = np.asarray(sigma, dtype=np.float64)
    if np.isnan(sigma).any():
        raise ValueError("sigma contains NaNs: expected the errors of ydata, which are not zero")
    if sigma.size == 1 or sigma.shape == (m,):
        errors = sigma.reshape(-1)
        if not errors.all():
            i = int((errors == 0).argmax())
            raise ValueError(f"sigma[{i}] is 0: residuals are divided by sigma")
        return lambda u: u / (errors if u.ndim == 1 else errors[:, None])
    if sigma.shape != (m, m):
        raise ValueError(
            f"sigma has incorrect shape {sigma.shape}: expected {(m,)} errors, or a covariance "
            f"matrix {(m, m)}"
        )
    try:
        L = cholesky(sigma, lower=True)
    except LinAlgError as error:
        raise ValueError("sigma must be positive definite: it is a covariance matrix") from error
    return lambda u: np.asarray(solve_triangular(L, u, lower=True))


def _fitted(
    f: Callable[..., Any], x: Any, y: Small | None, weigh: Callable[[Small], Small]
) -> Callable[[Small], Small]:
    """The residuals of a model, or its derivatives if there is no `y`, over their errors."""

    def fitted(parameters: Small) -> Small:
        out = np.asarray(f(x, *parameters))
        try:
            return weigh(out if y is None else out - y)
        except ValueError as error:
            if y is None or out.shape == y.shape:
                raise
            raise ValueError(
                f"f(xdata, ...) has shape {out.shape}, ydata {y.shape}: they must be the same"
            ) from error

    return fitted


def _covariance(res: OptimizeResult, absolute_sigma: bool, free: Any) -> Small:
    """The covariance of the parameters, for known errors, or scaled by the residuals.

    Parameters that are not `free`, because their bounds are equal, are constants.
    """
    m, n = len(res.fun), len(free)
    J = res.jac if isinstance(res.jac, np.ndarray) else res.jac.toarray()
    inverse, known = inverse_gram(J[:, free]), res.covariance
    if known is not None and np.isinf(known).any() and m > n:
        inverse = None  # columns are linearly dependent up to the error of differences
    if inverse is not None and not absolute_sigma:
        inverse = 2 * float(res.cost) / (m - n) * inverse if m > n else None
    if inverse is None:
        warnings.warn(
            "Covariance of the parameters could not be estimated", OptimizeWarning, stacklevel=3
        )
    covariance = np.zeros((len(res.x), len(res.x)))
    covariance[np.ix_(free, free)] = np.inf if inverse is None else inverse
    return covariance
