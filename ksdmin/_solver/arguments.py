"""The arguments of `minimize`, as the run that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from array_api_compat import is_jax_array, is_torch_array

from ksdmin._options import MethodOptions, nearest, parse_options
from ksdmin._problem.arrays import Space
from ksdmin._problem.box import as_box
from ksdmin._problem.entry import as_problem
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem
from ksdmin._problem.user_values import as_vector
from ksdmin._run.frames import frames_to_the_user
from ksdmin._solver.loop import Loop, begin
from ksdmin._solver.methods import METHODS


def described(
    fun: Any,
    x0: Any,
    args: Any,
    method: str,
    jac: Any,
    hess: Any,
    hessp: Any,
    bounds: Any,
    constraints: Any,
    tol: float | None,
    callback: Callable[..., Any] | None,
    options: Mapping[str, Any] | MethodOptions | None,
    subsets: Any,
    precond: Any,
    rng: Any,
) -> Loop:
    """The run that the arguments of :func:`ksdmin.minimize` describe."""
    problem = problem_of(fun, args, jac, hess, hessp, subsets, precond)
    bounds = bounds_by_name(problem, bounds)
    refuse_constraints(constraints, method)
    if method == "hf" and bounds is not None:
        raise ValueError("method 'hf' cannot handle bounds; 'ksd' can")
    parsed = parse_options(options, METHODS[method].options, tol, frames=frames_to_the_user())
    if jac is hess is hessp is None:
        problem = differentiated(problem, fun, x0, args, precond, bounds)
    loop = begin(problem, x0, callback, parsed, rng, subsets, bounds, method)
    if problem is not fun and loop.source is not None:
        loop.source = loop.source._replace(keep=True)
    return loop


def own_method(method: Any) -> str:
    """The name of a method of ours; others are refused."""
    name = "" if callable(method) else str(method or "ksd").lower()
    if name not in METHODS:
        hint = nearest(name, METHODS)
        raise ValueError(
            f"method {method!r}{hint}: a Solver takes 'ksd' or 'hf'; SciPy's methods run in one "
            "go, by ksdmin.minimize"
        )
    return name


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


def differentiated(
    problem: Problem, fun: Any, x0: Any, args: Any, precond: Any, bounds: Any
) -> Problem:
    """The problem with torch's or jax's derivatives, where `fun` has them at an `x0` of theirs."""
    name = "torch.plain_function" if is_torch_array(x0) else "functional.jax"
    known = is_torch_array(x0) or is_jax_array(x0)
    if problem is fun or not isinstance(problem, FunctionProblem) or not known:
        return problem
    x0 = as_vector(x0)
    box = as_box(bounds, x0)
    x0 = x0 if box is None else box.project(x0)  # nothing is evaluated outside
    args = args if isinstance(args, tuple) else (args,)
    adapter = import_module(f"ksdmin._adapters.{name}")  # as the library is there
    own = problem.in_space(Space(x0))  # an array for precond is checked
    checked = None if precond is None else lambda x, idx: own._diagonal(x, idx, 0.0)
    bounded = box is not None
    tried: Problem | None = adapter.tried(fun, x0, args, problem.subsets, checked, bounded)
    return problem if tried is None else tried


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


def refuse_constraints(constraints: Any, method: str) -> None:
    """None of our methods takes any."""
    empty = isinstance(constraints, (tuple, list, dict)) and not constraints
    if constraints is not None and not empty:
        raise ValueError(
            f"method {method!r} cannot handle constraints; methods that can: 'SLSQP', "
            "'trust-constr', 'COBYLA', 'COBYQA'"
        )
