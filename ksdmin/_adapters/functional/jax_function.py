"""A function that ``minimize`` got with an array of jax's and without derivatives."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ksdmin._adapters.functional.build import build
from ksdmin._adapters.functional.jax import Jax
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._problem.arrays import Array, Space, to_host
from ksdmin._problem.subsets import WHOLE, Subsets

# Of |g|: by more a difference along one direction must not contradict the gradient. Curvature and
# rounding make far less of it.
MAX_SLOPE_ERROR = 1e-2


def tried(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...],
    subsets: Subsets | None,
    precond: Any,
    bounded: bool,
) -> FunctionalProblem | None:
    """The problem of a function that jax can trace; None where it cannot, or not faithfully.

    It is evaluated at x0 as it is and compiled, and without bounds at two points beside it, to see
    that its value depends on nothing but x and that its gradient is all of it.
    """
    whole = WHOLE if subsets is None else subsets.full
    if whole is None:  # the user's own sets, which do not name it
        return None
    idx = () if subsets is None else (whole,)

    def with_args(theta: Any, *idx: Any) -> Any:
        return fun(theta, *idx, *args)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = _problem(with_args, x0, subsets, precond)
            value, g = problem.value_and_gradient(x0, whole)
            eager = float(np.asarray(with_args(x0, *idx)).reshape(()))
            faithful = _agree(value, eager, x0) and (bounded or _is_gradient(problem, x0, g, whole))
    except Exception:  # whatever it is, differences will show it, if they meet it too
        return None
    problem.spent.append((2, 1) if bounded else (4, 1))
    return problem if faithful else None


def _problem(
    fun: Callable[..., Any], x0: Array, subsets: Subsets | None, precond: Any
) -> FunctionalProblem:
    """As ``from_jax(fun, x0=x0)`` makes it."""
    problem = build(
        *(Jax("highest"), fun, None, None),
        residuals=None,
        params=None,
        curvature=None,
        chunk_size=None,
        memory_budget=None,
        sample_weight=None,
        x0=x0,
        subsets=subsets,
        l2=0.0,
        precond=precond,
        rng=0,
    )
    assert isinstance(problem, FunctionalProblem)
    return problem


def _agree(compiled: float, eager: float, x0: Array) -> bool:
    """Whether the function has one value, but for rounding."""
    alike = abs(compiled - eager) <= Space(x0).eps ** 0.5 * max(abs(compiled), abs(eager))
    return alike or not (math.isfinite(compiled) or math.isfinite(eager))


def _is_gradient(problem: FunctionalProblem, x0: Array, g: Array, whole: Any) -> bool:
    """Whether `g` agrees with a central difference along one direction.

    With ``jax.lax.stop_gradient`` in a function it does not.
    """
    space, gradient = Space(x0), to_host(g)
    h = space.eps ** (1 / 3) * max(1.0, space.norm(x0))
    u = np.random.default_rng(0).standard_normal(space.n)
    u /= np.linalg.norm(u)
    d = space.to_device(h * u)
    above, below = problem.value(x0 + d, whole), problem.value(x0 - d, whole)
    error = abs((above - below) / (2 * h) - float(gradient @ u))
    rounding = 100 * space.eps * max(abs(above), abs(below)) / h
    return not error > MAX_SLOPE_ERROR * float(np.linalg.norm(gradient)) + rounding
