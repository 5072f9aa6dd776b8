"""A plain function of the parameters: value, gradient and exact Hessian at (x, idx)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from ksdmin._adapters.arguments import noting_foreign_functions, noting_samples
from ksdmin._adapters.curvature import Product
from ksdmin._adapters.functional.library import Kernel, Library
from ksdmin._adapters.model_problem import Sums
from ksdmin._problem.arrays import Array


class PlainFunction(Sums):
    """A function with the interface of :class:`SampleSums`: a sum of one term.

    Parameters
    ----------
    library : Library
        What differentiates and compiles.
    function : callable
        ``function(x)``, or where it is `sampled` ``function(x, idx)``, the mean over `idx`.
    sampled : bool
        Whether it takes `idx`.
    """

    elements, is_weighted, nonlinear = 1, False, False  # of outputs and samples that it has not
    linear_matrix = jacobian_rows = None

    def __init__(self, library: Library, function: Callable[..., Any], sampled: bool) -> None:
        self._library, self._function, self._sampled = library, function, sampled
        self._raw: dict[str, Kernel] = {
            "value": self._value,
            "gradient": self._gradient,
            "product": self._set_up,
        }
        self._compiled = {name: library.compile(kernel) for name, kernel in self._raw.items()}
        self._compiled_for_slice: dict[tuple[str, str], Kernel] = {}
        self._multiply = library.compile(lambda state, v: state(v))

    def total(self, kind: str, x: Array, idx: Any, precision: Any = None) -> tuple[Any, ...]:
        """The value; with kind "gradient" the gradient too."""
        value, *gradient = self._kernel(kind, idx)(x)
        return float(value), *(self._library.as_given(g, x) for g in gradient)

    def product(
        self, x: Array, idx: Any, precision: Any, on_recompute: Callable[[], None]
    ) -> Product:
        """The product with the Hessian, which always keeps what its calls share."""
        state = self._kernel("product", idx)(x)
        return lambda v: self._library.as_given(self._multiply(state, v), v)

    def _kernel(self, kind: str, idx: Any) -> Kernel:
        """The kernel at `idx`: compiled for all arrays of one shape, or for one slice."""
        if isinstance(idx, slice):
            key = kind, str(idx)
            if key not in self._compiled_for_slice:
                kernel = partial(self._raw[kind], idx)
                self._compiled_for_slice[key] = self._library.compile(kernel)
            return self._compiled_for_slice[key]
        if not self._sampled:
            raise ValueError("a function of the parameters alone was asked for some samples only")
        kernels = self._compiled if self._library.compiles_for(idx) else self._raw
        return partial(kernels[kind], idx)

    def _value(self, idx: Any, x: Array) -> tuple[Array]:
        with noting_samples(self._sampled), noting_foreign_functions():
            value = self._function(x, idx) if self._sampled else self._function(x)
        shape = tuple(getattr(value, "shape", ()))
        if prod(shape) != 1:
            raise ValueError(f"the function must return a scalar, not an array of shape {shape}")
        return (self._library.xp.sum(value),)

    def _gradient(self, idx: Any, x: Array) -> tuple[Array, Array]:
        value, pullback = self._library.vjp(lambda x: self._value(idx, x)[0], x)
        return value, pullback(self._library.xp.ones_like(value))

    def _set_up(self, idx: Any, x: Array) -> Product:
        """The product v -> Hv: the Hessian, symmetric, is its own transpose."""
        return self._library.vjp(lambda x: self._gradient(idx, x)[1], x)[1]
