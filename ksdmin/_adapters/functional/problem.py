"""Functions of autograd and jax as problems over one flat vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import numpy as np

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.functional.library import Library
from ksdmin._adapters.functional.plain_function import PlainFunction
from ksdmin._adapters.functional.sample_sums import SampleSums
from ksdmin._adapters.model_problem import ModelProblem
from ksdmin._adapters.names import Names
from ksdmin._problem.arrays import Array
from ksdmin._problem.hosted import is_hosted
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Subsets


class CompiledMeans:
    """Means of sums of jax or autograd, with the penalty.

    Parameters
    ----------
    library : Library
        What compiles.
    l2 : number, array or None
        The penalty.
    """

    def __init__(self, library: Library, l2: float | Array | None) -> None:
        self.l2, self._xp = l2, library.xp
        self._mean_gradient = library.compile_shared(_mean_gradient)
        self._mean_squares = library.compile_shared(_mean_squares)
        self._penalty = library.compile_shared(_penalty)

    def value(self, total: float, size: int, x: Array) -> float:
        """The mean loss."""
        return total / size + (0.0 if self.l2 is None else float(self._penalty(self.l2, x)))

    def gradient(self, total: Array, size: int, x: Array) -> Array:
        """Its gradient."""
        return self._mean_gradient(total, float(size), self.l2, x)

    def squares(self, total: Array, size: int, x: Array) -> Array:
        """The mean of squared gradients, with the penalty's diagonal."""
        return self._mean_squares(total, float(size), self.l2, x)

    def product(self, total: Array, size: int, v: Array) -> Array:
        """The product of a vector."""
        return self._mean_gradient(total, float(size), self.l2, v)

    def own_product(self, product: Array, v: Array) -> Array:
        """The same with a mean that the user has computed."""
        return product if self.l2 is None else product + self.l2 * v

    def matrix(self, total: Array, size: int) -> Array:
        """The matrix."""
        H = total / float(size)
        if self.l2 is None:
            return H
        return H + self._xp.eye(H.shape[0], dtype=H.dtype) * self.l2

    def rows(self, R: Array, scale: float) -> Array:
        """The rows times a number."""
        return scale * R

    def residuals(self, slopes: Array, root: Array, scale: float) -> Array:
        """scale M^-1/2 slopes, so that the rows times it are the gradient; zero where M is."""
        xp = np if isinstance(root, np.ndarray) else self._xp
        return xp.where(root > 0, scale / xp.where(root > 0, root, 1.0), 0.0) * slopes


class FunctionalProblem(ModelProblem):
    """A model, or a function, as a problem; made by :func:`from_autograd` or :func:`from_jax`.

    Attributes
    ----------
    x0 : array
        The initial parameters, as one flat vector.
    subsets : Subsets or None
        As many samples as there are data.
    """

    _sums: SampleSums | PlainFunction

    def __init__(
        self,
        library: Library,
        sums: SampleSums | PlainFunction,
        x0: Array,
        unflatten: Callable[[Array], Any],
        subsets: Subsets | None,
        curvature: Any,
        l2: float | Array | None,
        precond: Any,
        names: Names,
    ) -> None:
        sampled = isinstance(sums, SampleSums)
        if isinstance(precond, str) and not sampled:
            precond = None  # a plain function has no gradients of single samples
        noise = library.noise if sampled and x0.dtype.itemsize == 4 else None
        traits = Traits(nonlinear=sums.nonlinear, noise=noise)
        base = x0, subsets, traits, precond
        kernels = sums.linear_matrix, sums.jacobian_rows
        super().__init__(sums, CompiledMeans(library, l2), *base, curvature, *kernels)
        self._library, self._unflatten, self._own_names = library, unflatten, names
        # Values and gradients that were computed before a run, which counts them: one entry
        self.spent: list[tuple[int, int]] = []

    @property
    def elements(self) -> int:
        """How many outputs a sample has; that of a plain function has one."""
        return self._sums.elements

    @property
    def is_weighted(self) -> bool:
        """Whether the samples have weights."""
        return self._sums.is_weighted

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also one of numpy) as the parameters that the model takes.

        ``problem.x0`` stays where it is: ``minimize(problem, res.x)`` continues from a result.
        """
        return self._unflatten(self._to_device(x) if isinstance(x, np.ndarray) else x)

    def _finer(self) -> tuple[float | None, dict[str, Any]] | None:
        """Values and gradients in float32, where they are in less.

        Products keep the precision that was asked for: the curvature need not be so exact.
        """
        finer = self._library.finer
        if self.traits.noise is None or finer is None or not isinstance(self._sums, SampleSums):
            return None
        return finer.noise, {"_library": finer, "_sums": self._sums.compiled_by(finer)}

    def _names(self) -> Names:
        return self._own_names

    def _own_product(self, x: Array, idx: Any) -> Product:
        self._check_shape(x)
        given = self._curvature(self._to_device(x), idx)
        own = given if callable(given) else lambda v: given @ v
        return lambda v: own(self._to_device(v))

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        while self.spent:
            self._counts.add(*self.spent.pop())
        return super()._evaluate(x, idx, diagonal)

    def _point(self, x: Any) -> Array:
        """A vector of any kind; in numpy where that does the algebra of a run, too."""
        self._check_shape(x)
        hosted = is_hosted(self.x0)
        return np.asarray(x, dtype=self.x0.dtype) if hosted else self._to_device(x)

    def _checked(self, x: Any, idx: Any) -> tuple[Array, Any]:
        self._check_shape(x)
        return x, self._sums.indices(idx)

    def __getstate__(self) -> Never:
        raise TypeError(
            "a problem of from_autograd or from_jax cannot be pickled or deep-copied, as its "
            "functions are compiled or traced: make it again, from the model, the loss and the "
            "data, where it is needed"
        )


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
