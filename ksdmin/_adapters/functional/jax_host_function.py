"""Residuals of jax arrays for a fit on the host: compiled, with their Jacobian, on the device."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_leaves

from ksdmin._adapters.array_function import ArrayFunction
from ksdmin._adapters.functional.jax import Jax
from ksdmin._adapters.functional.jax_arrays import (
    as_floats,
    copied_like,
    flatten,
    paths,
    refuse_traced,
)
from ksdmin._adapters.names import Names
from ksdmin._problem.arrays import Array, Small, to_host


class HostFunction(ArrayFunction):
    """A function of arrays of jax, for an algorithm on the host.

    Parameters
    ----------
    fun : callable
        ``fun(theta)`` returns an array, or a tree of them. Where jax cannot trace it, it is called
        as it is.
    x0 : array or tree of arrays
        What `theta` looks like.
    """

    def __init__(self, fun: Any, x0: Any) -> None:
        refuse_traced(x0)
        self._tree = x0 if flatten(x0)[0].shape[0] else as_floats(x0)
        self._like, self._unflatten = flatten(self._tree)
        self._fun = fun
        if not self._like.shape[0]:
            raise ValueError("x0 is empty: there is nothing to minimise over")
        self.x0 = to_host(self._like)
        library = Jax("highest")
        self._values, self._slopes = library.compile(self._joined), library.compile(self._rows)
        self._traced = False  # whether jax has traced the function

    @classmethod
    def of_model(cls, f: Any, xdata: Any, start: Small, like: Any) -> Self:
        """``f(xdata, *parameters)`` in the largest dtype that jax is set to, where `like` is."""

        def on_device(values: Any) -> Array:
            return copied_like(np.asarray(values, dtype=jnp.result_type(float)), like)

        known = on_device(xdata) if isinstance(xdata, np.ndarray) else xdata
        return cls(lambda theta: f(known, *theta), on_device(start))

    def __call__(self, x: Small) -> Any:
        """The values, as one vector."""
        if self._traced:
            values = np.asarray(self._values(self._on_device(x)))
            return values.astype(self._like.dtype, copy=False)  # it has no more digits than x
        made = self._fun(self._unflatten(self._on_device(x)))
        leaves = tree_leaves(made)
        if not any(isinstance(leaf, jax.Array) for leaf in leaves):
            return made  # of numpy, say: who takes it looks at it
        return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves])

    def jacobian(self, x: Small) -> Any:
        """The Jacobian: forward where there are fewer columns than rows, else backward."""
        J = np.asarray(self._slopes(self._on_device(x)))
        self._traced = True
        return J

    def _joined(self, x: Array) -> Array:
        leaves = tree_leaves(self._fun(self._unflatten(x)))
        return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])

    def _rows(self, x: Array) -> Array:
        (m,) = jax.eval_shape(self._joined, x).shape
        made = jax.jacrev(self._joined) if m < x.shape[0] else jax.jacfwd(self._joined)
        return made(x)

    def given(self, x: Small) -> Any:
        """A vector in the form of x0."""
        return self._unflatten(self._on_device(x))

    def names(self) -> Names:
        """Of the parts of x0."""
        return Names(paths(self._tree))

    @property
    def eps(self) -> float:
        """Of the dtype of x0."""
        return float(np.finfo(self._like.dtype).eps)

    def _on_device(self, x: Small) -> Array:
        return copied_like(np.asarray(x, dtype=self._like.dtype), self._like)
