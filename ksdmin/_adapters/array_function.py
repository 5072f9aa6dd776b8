"""A function of torch or jax arrays, for an algorithm on the host; usually residuals.

The function stays on its device. The host passes a vector, and gets the values as one vector, and
their Jacobian by autodiff.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, Self

import numpy as np
from array_api_compat import is_jax_array, is_torch_array

from ksdmin._adapters.flat_problem import is_slope
from ksdmin._adapters.names import Names
from ksdmin._adapters.trees import tree_leaves
from ksdmin._problem.arrays import Small


class ArrayFunction(Protocol):
    """The function, called with vectors of numpy; each library has its own."""

    x0: Small  # where it starts, as one vector in float64

    def __call__(self, x: Small) -> Any:
        """The values, as one numpy vector of their own dtype."""

    def jacobian(self, x: Small) -> Any:
        """The Jacobian of the values, (m, n), by autodiff."""

    def given(self, x: Small) -> Any:
        """A vector in the form of the user's x0."""

    def names(self) -> Names:
        """The names of the parts of x0."""

    def __init__(self, fun: Any, x0: Any) -> None:
        """``fun(theta)`` returns an array, or a tree of them; `theta` has the form of x0."""

    @staticmethod
    def like(values: Any, array: Any) -> Any:
        """Numbers on the device of `array`, in float64 if the library has it."""

    @classmethod
    def of_model(cls, f: Any, xdata: Any, start: Small, array: Any) -> Self:
        """``f(xdata, *parameters)`` on the device of `array`."""
        known = cls.like(xdata, array) if isinstance(xdata, np.ndarray) else xdata
        return cls(lambda theta: f(known, *theta), cls.like(start, array))

    @property
    def eps(self) -> float:
        """The eps of the function's dtype."""

    def is_differentiable(self, *, bounded: bool) -> bool:
        """Whether autodiff can differentiate the function, and misses no part of it.

        It is called at x0 and, without bounds, at two points near it. If it raises, it will raise
        again when its values are needed.
        """
        try:
            J = np.asarray(self.jacobian(self.x0), dtype=np.float64)
        except Exception:
            return False
        x, size = self.x0, float(np.linalg.norm(self.x0))
        return bounded or is_slope(lambda d: self(x + d), size, J, self.eps)


def array_function(
    fun: Callable[..., Any], x0: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
) -> ArrayFunction | None:
    """The function, if x0 contains arrays of torch or jax; otherwise None."""
    x0 = list(x0) if isinstance(x0, Iterator) else x0  # such as net.parameters()
    like = x0 if hasattr(x0, "named_parameters") else first_array(x0)
    if like is None:
        return None
    args, kwargs = args if isinstance(args, (tuple, list)) else (args,), dict(kwargs or {})

    def of_parameters(theta: Any) -> Any:
        return fun(theta, *args, **kwargs)

    made: ArrayFunction = host_function(like)(of_parameters if args or kwargs else fun, x0)
    return made


def host_function(like: Any) -> Any:
    """The class for functions of arrays like this one, or of a torch module."""
    name = "functional.jax" if is_jax_array(like) else "torch.host_function"
    return import_module(f"ksdmin._adapters.{name}").HostFunction


def first_array(*trees: Any) -> Any:
    """The first array of torch or jax in them; None: there is none."""
    for tree in trees:
        if tree is None or isinstance(tree, (np.ndarray, np.generic, float, int)):
            continue
        for leaf in tree_leaves(tree):
            if is_torch_array(leaf) or is_jax_array(leaf):
                return leaf
            inner = next(filter(is_jax_array, _leaves_of_jax(leaf)), None)
            if inner is not None:
                return inner
    return None


def _leaves_of_jax(leaf: Any) -> list[Any]:
    """The leaves of a tree that only jax knows, such as a module of equinox."""
    jax = sys.modules.get("jax")  # where the user has not imported it, the tree is not jax's
    if jax is None or isinstance(leaf, (float, int, str, np.ndarray, np.generic)):
        return []
    return list(jax.tree_util.tree_leaves(leaf))
