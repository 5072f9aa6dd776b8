"""Fits of torch and jax functions: arguments for the host, and results in the form of x0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from array_api_compat import is_jax_array, is_torch_array
from scipy.optimize import Bounds, OptimizeResult

from ksdmin._adapters.array_function import ArrayFunction, first_array, host_function
from ksdmin._problem.arrays import Small, to_host
from ksdmin._result import Result
from ksdmin._run.observer import takes_result

Form = Callable[[Small], Any]


def jacobian_of(
    fun: ArrayFunction, jac: Any, bounds: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """The user's Jacobian on the host, or one by autodiff, or the name of a scheme.

    If autodiff cannot differentiate the function, finite differences are used.
    """
    if callable(jac):
        args, kwargs = args if isinstance(args, (tuple, list)) else (args,), kwargs or {}
        return lambda x: on_host(jac(fun.given(x), *args, **kwargs))
    if jac == "cs":
        raise ValueError(
            "jac='cs': complex steps need a function of numpy; leave jac out for autodiff"
        )
    if jac not in (None, "2-point"):
        return jac
    return fun.jacobian if fun.is_differentiable(bounded=_is_bounded(bounds)) else "2-point"


def _is_bounded(bounds: Any) -> bool:
    """Whether there are bounds, beyond which nothing is evaluated."""
    if isinstance(bounds, Mapping):
        return bool(bounds)
    return any(bool(np.isfinite(on_host(limit)).any()) for limit in pair_of(bounds))


def pair_of(bounds: Any) -> tuple[Any, Any]:
    """The lower and the upper bounds."""
    pair = (bounds.lb, bounds.ub) if isinstance(bounds, Bounds) else bounds
    if len(pair) != 2:
        raise ValueError(
            f"bounds: {len(pair)} entries, expected (lower, upper), each an array or a number, or "
            "scipy.optimize.Bounds"
        )
    return pair[0], pair[1]


def on_host(values: Any) -> Any:
    """Torch and jax arrays as numpy arrays, also within tuples and lists; others unchanged."""
    if isinstance(values, (tuple, list)) and first_array(values) is not None:
        return [on_host(one) for one in values]
    return to_host(values) if is_torch_array(values) or is_jax_array(values) else values


def bounds_of(fun: ArrayFunction, bounds: Any) -> Any:
    """Bounds for the host; they may be given by the names of parts of x0."""
    if isinstance(bounds, Mapping):
        return fun.names().limits(bounds)
    if isinstance(bounds, (tuple, list)):
        return tuple(map(on_host, bounds))
    return bounds


def model_on_host(
    f: Callable[..., Any], jac: Any, bounds: Any, xdata: Any, start: Small, like: Any
) -> tuple[Callable[..., Any], Any, Form]:
    """A model of ``curve_fit`` and its `jac` on the host; and parameters as the library's array.

    `f` gets `xdata` and the parameters as arrays of the library and on the device of `like`.
    """
    make, n = host_function(like).of_model, len(start)
    model = make(f, xdata, start, like)
    found = make(jac, xdata, start, like) if callable(jac) else jacobian_of(model, jac, bounds)

    def slopes(xdata: Any, *parameters: float) -> Any:
        return np.reshape(found(np.array(parameters)), (-1, n))

    values = lambda xdata, *parameters: model(np.array(parameters))  # noqa: E731
    return values, slopes if callable(found) else found, model.given


def shown_in_form(callback: Callable[..., Any] | None, given: Form) -> Callable[..., Any] | None:
    """The user's callback, with x in the form of x0."""
    if not callable(callback):
        return callback
    user = callback
    if not takes_result(user):
        return lambda x: user(given(x))

    def shown(intermediate_result: OptimizeResult) -> Any:
        intermediate_result.x = given(intermediate_result.x)
        return user(intermediate_result=intermediate_result)

    return shown


def in_form(res: OptimizeResult, given: Form) -> OptimizeResult:
    """The result with x in the form of x0; it remembers the vector."""
    origin = res.origin() if isinstance(res, Result) else None
    if origin is not None:
        res.come_from(origin._replace(x=res.x), keep=True)
    res.x = given(res.x)
    return res
