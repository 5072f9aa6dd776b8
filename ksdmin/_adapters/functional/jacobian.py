"""The rows of the Jacobian of a model, and the curvature matrix of one that is linear.

As in ``_adapters/torch/matrices.py``. Only jax has the rows, because it can vectorise the reverse
passes of many samples.
"""

from __future__ import annotations

from typing import Any

from ksdmin._adapters.functional.data import Samples
from ksdmin._adapters.functional.kernels import Kernels
from ksdmin._adapters.functional.library import Library
from ksdmin._problem.arrays import Array

ROW_COPIES = 4  # memory of a chunk, in units of its rows
BUDGET_SHARE = 1 / 4  # share of the memory budget for J; a product with M is as large again


class JacobianRows:
    """The rows of one model: what they count as, and how many of them a sample has."""

    def __init__(self, library: Library, kernels: Kernels, elements: int) -> None:
        self.elements = self.products = elements
        self.rows = library.compile(kernels.rows)
        self.losses_and_slopes = library.compile(kernels.losses_and_slopes)


class LinearMatrix:
    """The curvature matrices of one model on sets of samples."""

    products = 1  # what a matrix counts as: the data are read once

    def __init__(
        self, library: Library, kernels: Kernels, samples: Samples, elements: int, n: int
    ) -> None:
        self.cost = elements * n / 2  # of a matrix, in floating-point operations of a product
        self._samples = samples
        self._columns = library.compile(kernels.columns)
        self._matrix = library.compile(kernels.matrix)
        self._jacobian: Array = None

    def __call__(self, x: Array, idx: Any) -> Array:
        """The sum of the samples' matrices."""
        if self._jacobian is None:
            self._jacobian = self._columns(x, self._chunk(slice(None)))
        whole = self._samples.size(idx) == self._samples.n
        J = self._jacobian if whole else self._jacobian[idx]
        return self._matrix(J, x, self._chunk(slice(None) if whole else idx))

    def _chunk(self, idx: Any) -> Any:
        """All samples of a set at once, without padding."""
        return next(self._samples.chunks(idx, self._samples.size(idx)))
