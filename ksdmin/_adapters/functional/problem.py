"""Functions of autograd and jax as problems over one flat vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Never, Self

import numpy as np

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat_problem import FlatProblem
from ksdmin._adapters.functional.library import Library
from ksdmin._adapters.functional.plain_function import PlainFunction
from ksdmin._adapters.functional.sample_sums import SampleSums
from ksdmin._adapters.names import Names
from ksdmin._problem.arrays import Array
from ksdmin._problem.hosted import is_hosted
from ksdmin._problem.protocol import Jacobian, Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.values import changed


class FunctionalProblem(FlatProblem):
    """A model, or a function, as a problem; made by :func:`from_autograd` or :func:`from_jax`.

    Attributes
    ----------
    x0 : array
        The initial parameters, as one flat vector.
    subsets : Subsets or None
        As many samples as there are data.
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
        precond: Any,
        names: Names,
    ) -> None:
        sampled = isinstance(terms, SampleSums)
        noise = library.noise if sampled and x0.dtype.itemsize == 4 else None
        if isinstance(precond, str) and not sampled:
            precond = None  # a plain function has no gradients of single samples
        whole = terms if isinstance(terms, SampleSums) and not callable(curvature) else None
        self._matrix = None if whole is None else whole.linear_matrix
        self._rows = None if whole is None else whole.jacobian_rows
        traits = Traits(
            nonlinear=isinstance(terms, SampleSums) and terms.nonlinear,
            noise=noise,
            has_matrix=self._matrix is not None,
            matrix_cost=None if self._matrix is None else self._matrix.cost,
            has_jacobian=self._rows is not None and getattr(l2, "ndim", 0) == 0,
            rows_per_sample=1.0 if self._rows is None else float(self._rows.elements),
            has_finer_arithmetic=True,
        )
        super().__init__(x0, subsets, traits, precond)
        self._library, self._terms, self._unflatten = library, terms, unflatten
        self._curvature, self._l2, self._own_names = curvature, l2, names
        self._mean_gradient = library.compile_shared(_mean_gradient)
        self._mean_squares = library.compile_shared(_mean_squares)
        self._penalty = library.compile_shared(_penalty)
        # Values and gradients that were computed before a run, which counts them: one entry
        self.spent: list[tuple[int, int]] = []

    @property
    def elements(self) -> int:
        """How many outputs a sample has; that of a plain function has one."""
        return self._terms.elements if isinstance(self._terms, SampleSums) else 1

    @property
    def is_weighted(self) -> bool:
        """Whether the samples have weights."""
        return isinstance(self._terms, SampleSums) and self._terms.is_weighted

    def in_finer_arithmetic(self) -> Self | None:
        """The same with values and gradients in float32; None where they are that already.

        Products keep the precision that was asked for: the curvature need not be so exact.
        """
        finer = self._library.finer
        if self.traits.noise is None or finer is None or not isinstance(self._terms, SampleSums):
            return None
        terms = self._terms.compiled_by(finer)
        traits = replace(self.traits, noise=finer.noise)
        return changed(self, _library=finer, _terms=terms, traits=traits)

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also one of numpy) as the parameters that the model takes.

        ``problem.x0`` stays where it is: ``minimize(problem, res.x)`` continues from a result.
        """
        return self._unflatten(self._to_device(x) if isinstance(x, np.ndarray) else x)

    def _names(self) -> Names:
        return self._own_names

    def _value(self, x: Array, idx: Any) -> float:
        idx = self._checked(x, idx)
        self._counts.nfev += 1
        (total,) = self._terms.total("value", x, idx)
        return self._mean(total, x, idx)

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        """The product v -> Hv with the curvature that was asked for."""
        self._check_shape(x)
        if callable(self._curvature):
            given = self._curvature(self._to_device(x), idx)
            own = given if callable(given) else lambda v: given @ v
            return self._counted(self._with_l2(lambda v: own(self._to_device(v))))
        idx = self._checked(x, idx)
        product = self._terms.product(x, idx, self._count_forward_pass)
        size = float(self._terms.size(idx))
        return self._counted(lambda v: self._mean_gradient(product(v), size, self._l2, v))

    def _with_l2(self, product: Product) -> Product:
        l2 = self._l2
        return product if l2 is None else lambda v: product(v) + l2 * self._to_device(v)

    def matrix(self, x: Array, idx: Any = WHOLE) -> Array:
        """The curvature matrix itself, where the traits say that it is to be had."""
        if self._matrix is None:
            raise ValueError("this problem has no curvature matrix: see traits.has_matrix")
        idx = self._checked(x, idx)
        self._counts.nhev += 1
        H = self._matrix(x, idx) / float(self._terms.size(idx))
        return H if self._l2 is None else H + self._space.diagonal_matrix(self._l2)

    def jacobian(self, x: Array, idx: Any = WHOLE) -> Jacobian:
        """The curvature as rows, where the traits say that they are to be had."""
        if self._rows is None or not self.traits.has_jacobian:
            raise ValueError("this problem has no Jacobian: see traits.has_jacobian")
        assert isinstance(self._terms, SampleSums)
        kernel, terms, idx = self._rows, self._terms, self._checked(x, idx)
        self._counts.nhev += kernel.elements
        R, slopes, root = terms.jacobian(kernel, x, idx)
        scale = float(terms.size(idx)) ** -0.5
        xp = np if isinstance(R, np.ndarray) else self._library.xp
        inverse_root = xp.where(root > 0, scale / xp.where(root > 0, root, 1.0), 0.0)

        def at(y: Array) -> tuple[float, Array]:
            self._counts.nfev += 1
            total, slopes = terms.slopes(kernel, y, idx)
            return self._mean(total, y, idx), inverse_root * slopes

        penalty = 0.0 if self._l2 is None else float(self._l2)
        return Jacobian(scale * R, inverse_root * slopes, penalty, at)

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        while self.spent:
            self._counts.add(*self.spent.pop())
        return super()._evaluate(x, self._checked(x, idx), diagonal)

    def _means(self, kind: str, x: Array, idx: Any) -> tuple[Any, ...]:
        total, g, *squares = self._terms.total(kind, x, idx)
        size = float(self._terms.size(idx))
        mean = self._mean_gradient(g, size, self._l2, x)
        diagonal = (self._mean_squares(u, size, self._l2, x) for u in squares)
        return self._mean(total, x, idx), mean, *diagonal

    def _diagonal_samples(self, idx: Any) -> Any:
        assert isinstance(self._terms, SampleSums)
        return self._terms.diagonal_samples(idx)

    def _point(self, x: Any) -> Array:
        """A vector of any kind; in numpy where that does the algebra of a run, too."""
        self._check_shape(x)
        hosted = is_hosted(self.x0)
        return np.asarray(x, dtype=self.x0.dtype) if hosted else self._to_device(x)

    def _checked(self, x: Any, idx: Any) -> Any:
        """A set as the sums take it; that of a plain function is whatever its user wants."""
        self._check_shape(x)
        return self._terms.indices(idx) if isinstance(self._terms, SampleSums) else idx

    def _mean(self, total: float, x: Array, idx: Any) -> float:
        penalty = 0.0 if self._l2 is None else float(self._penalty(self._l2, x))
        return total / self._terms.size(idx) + penalty

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
