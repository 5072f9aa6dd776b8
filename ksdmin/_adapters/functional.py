"""Functions of autograd and jax as problems over one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ksdmin._adapters.functional_function import PlainFunction
from ksdmin._adapters.functional_library import Library
from ksdmin._adapters.functional_sums import SampleSums
from ksdmin._arrays import Array, Space, to_host
from ksdmin._curvature import Product
from ksdmin._problem import Counts
from ksdmin._subsets import WHOLE, Subsets


class FunctionalProblem:
    """A model, or a function, as a problem; made by :func:`from_autograd` or :func:`from_jax`.

    Attributes
    ----------
    x0 : array
        The initial parameters, as one flat vector.
    subsets : Subsets or None
        As many samples as there are data.
    has_diagonal : bool
        Whether gradients bring the diagonal of the empirical Fisher matrix; set it to False to
        do without.
    """

    def __init__(
        self,
        library: Library,
        terms: SampleSums | PlainFunction,
        x0: Array,
        unflatten: Callable[[Array], Any],
        subsets: Subsets | None,
        curvature: Any,
        l2: float | Array | None,
    ) -> None:
        self.x0, self.subsets, self.has_diagonal = x0, subsets, terms.has_diagonal
        single = x0.dtype.itemsize == 4
        self.noise = library.noise if single and isinstance(terms, SampleSums) else None
        self._space, self._terms, self._unflatten = Space(x0), terms, unflatten
        self._curvature, self._l2 = curvature, l2
        self._counts = Counts()
        self._mean_gradient = library.compile(_mean_gradient, shared=True)
        self._mean_squares = library.compile(_mean_squares, shared=True)
        self._penalty = library.compile(_penalty, shared=True)

    def counting(self, counts: Counts) -> FunctionalProblem:
        """A copy for one run, that counts in `counts`."""
        twin = copy.copy(self)
        twin._counts = counts
        return twin

    def unflatten(self, x: Any) -> Any:
        """A flat vector (a numpy one, too) as the parameters that the model takes."""
        return self._unflatten(self._away(x) if isinstance(x, np.ndarray) else x)

    # The verbs

    def value(self, x: Array, idx: Any = WHOLE) -> float:
        """The mean loss."""
        self._counts.nfev += 1
        (total,) = self._terms.total("value", x, idx)
        return self._mean(total, x, idx)

    def value_and_gradient(self, x: Array, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        """(value, gradient), or with the diagonal of the empirical Fisher matrix."""
        self._counts.nfev += 1
        self._counts.njev += 1
        total, *sums = self._terms.total("diagonal" if diagonal else "gradient", x, idx)
        size = float(self._terms.size(idx))
        g = self._mean_gradient(sums[0], size, self._l2, x)
        squares = [self._mean_squares(u, size, self._l2, x) for u in sums[1:]]
        return self._mean(total, x, idx), g, *squares

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        """The product v -> Hv with the curvature that was asked for."""
        if callable(self._curvature):
            own = self._curvature(x, idx)
            return self._counted(own if callable(own) else lambda v: own @ v, keeps=True)
        product, keeps = self._terms.product(x, idx)
        size = float(self._terms.size(idx))
        return self._counted(lambda v: self._mean_gradient(product(v), size, self._l2, v), keeps)

    def _mean(self, total: float, x: Array, idx: Any) -> float:
        penalty = 0.0 if self._l2 is None else float(self._penalty(self._l2, x))
        return total / self._terms.size(idx) + penalty

    def _counted(self, product: Product, keeps: bool) -> Product:
        def counted(v: Array) -> Array:
            self._counts.nhev += 1
            self._counts.nfev += not keeps  # the forward pass is made again
            return product(v)

        return counted

    # The same on the whole set, for SciPy's methods: numpy in, numpy out

    def fun(self, x: npt.NDArray[Any]) -> float:
        """The value at a numpy vector."""
        return self.value(self._away(x))

    def jac(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The gradient at a numpy vector."""
        return to_host(self.value_and_gradient(self._away(x))[1])

    def hessp(self, x: npt.NDArray[Any], p: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The curvature at a numpy vector, times another."""
        return to_host(self.curvature(self._away(x))(self._away(p)))

    def _away(self, x: Any) -> Array:
        return x if self._space.holds(x) else self._space.away(np.asarray(x))


def _mean_gradient(total: Array, size: float, l2: float | Array | None, x: Array) -> Array:
    """The mean of gradients (or products) and the penalty's."""
    mean = total / size if l2 is None else total / size + l2 * x
    return mean.astype(x.dtype, copy=False)


def _mean_squares(total: Array, size: float, l2: float | Array | None, x: Array) -> Array:
    """The mean of squared gradients, and the penalty's diagonal."""
    mean = total / size if l2 is None else total / size + l2
    return mean.astype(x.dtype, copy=False)


def _penalty(l2: float | Array, x: Array) -> Array:
    return (l2 * x * x).sum() / 2
