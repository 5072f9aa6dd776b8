"""The arguments of `as_problem` for SciPy-style callables: checked, and as a problem."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from scipy.optimize import HessianUpdateStrategy, OptimizeWarning

from ksdmin._problem import differences
from ksdmin._problem.functions import DifferencedProblem, FunctionProblem
from ksdmin._problem.subsets import as_subsets


def function_problem(
    fun: Any,
    args: Any,
    jac: Callable[..., Any] | bool | str | None,
    hess: Callable[..., Any] | str | None,
    hessp: Callable[..., Any] | None,
    subsets: Any,
    precond: Any,
    nonlinear: bool,
) -> FunctionProblem:
    """The problem of :func:`ksdmin.as_problem`, which documents the arguments."""
    if not callable(fun):
        raise TypeError(f"fun must be callable or a problem object, not {type(fun).__name__}")
    if jac is None or jac is False:
        jac = "2-point"
    if jac is not True:
        check_derivative("jac", jac, "a callable, True, '2-point', '3-point', 'cs' or None")
    if isinstance(hess, HessianUpdateStrategy):
        warnings.warn(
            f"hess={type(hess).__name__}() is not used: ksd has a quasi-Newton model of its own, "
            "and differences of gradients where that does not suffice. Leave hess out",
            OptimizeWarning,
            stacklevel=5,
        )
        hess = None
    if hess is not None:
        check_derivative("hess", hess, "a callable, '2-point', '3-point', 'cs' or None")
    if hessp is not None and not callable(hessp):
        raise TypeError("hessp must be callable: hessp(x, p, *args)")
    args = args if isinstance(args, tuple) else (args,)
    sets = None if subsets is None else as_subsets(subsets)
    kind = DifferencedProblem if isinstance(jac, str) else FunctionProblem
    return kind(fun, args, jac, hess, hessp, sets, precond, nonlinear)


def check_derivative(name: str, given: Any, expected: str) -> None:
    """Refuse what is neither a function nor a scheme."""
    if not callable(given) and not isinstance(given, str):
        raise TypeError(
            f"{name} must be a function, {name}(x, *args), or the name of a scheme, not a "
            f"{type(given).__name__}"
        )
    if isinstance(given, str) and given not in differences.STEP_POWER:
        raise ValueError(f"{name}={given!r}: expected {expected}")
