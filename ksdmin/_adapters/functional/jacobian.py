"""The rows of the Jacobian of a model, and the curvature matrix of one that is linear.

As in ``_adapters/torch/matrices.py``: M^1/2 J, where the diagonal matrix M has the second
derivatives of the losses in the outputs. Only jax has them, because it can vectorise the reverse
passes of many samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ksdmin._adapters.curvature import Product, off_diagonal
from ksdmin._adapters.functional.data import Samples
from ksdmin._adapters.functional.library import Chunk, Library
from ksdmin._problem.arrays import Array

ROW_COPIES = 4  # memory of a chunk, in units of its rows


class JacobianRows:
    """The rows of one model.

    Attributes
    ----------
    products : int
        What the rows count as.
    """

    def __init__(
        self,
        library: Library,
        outputs: Callable[[Array, Any], Array],  # (x, inputs) -> outputs, one row per sample
        losses: Callable[[Array, Any], Array],  # (outputs, targets) -> the losses
        # (outputs, targets, weights) -> the product with M, and the gradient of the losses.
        output_hessian: Callable[[Array, Any, Array], Product],
        slopes: Callable[[Array, Any, Array], Array],
        elements: int,
    ) -> None:
        self._library, self._outputs, self._losses = library, outputs, losses
        self._output_hessian, self._slopes = output_hessian, slopes
        self.elements = self.products = elements
        self.rows = library.compile(self._rows)
        self.losses_and_slopes = library.compile(self._losses_and_slopes)
        self.deviation = library.compile(self._deviation)

    def _rows(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """M^1/2 J, the slopes of the losses, and M^1/2; padding has rows of zeros."""
        xp = self._library.xp
        # with the derivatives come the outputs; a forward pass of their own compiles longer
        z, J = self._library.rows_of_samples(self._outputs, x, chunk.inputs)
        curved = self._output_hessian(z, chunk.targets, chunk.w)(xp.ones_like(z))
        root = xp.sqrt(xp.maximum(curved, 0.0)).reshape(-1)
        slopes = self._slopes(z, chunk.targets, chunk.w)
        return J.reshape(-1, x.shape[0]) * root[:, None], slopes.reshape(-1), root

    def _losses_and_slopes(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """The partial sums of the weighted losses, their slopes in the outputs, and the outputs."""
        z = self._outputs(x, chunk.inputs)
        losses = self._library.partial_sums(chunk.w * self._losses(z, chunk.targets))
        return losses, self._slopes(z, chunk.targets, chunk.w).reshape(-1), z

    def _deviation(self, x: Array, chunk: Chunk) -> Array:
        """The relative size of the off-diagonal part of M."""
        z = self._outputs(x, chunk.inputs)
        return off_diagonal(self._output_hessian(z, chunk.targets, chunk.w), z)


# The curvature matrix of a model that is linear in its parameters: J^T M J, as matrix products


BUDGET_SHARE = 1 / 4  # share of the memory budget for J; a product with M is as large again


class LinearMatrix:
    """The matrices of one model on sets of samples.

    Attributes
    ----------
    cost : float
        Of a matrix, in floating-point operations of a product.
    products : int
        What a matrix counts as: the data are read once.
    """

    products = 1

    def __init__(
        self,
        library: Library,
        # (x, inputs) -> outputs, one row per sample, linear in x.
        outputs: Callable[[Array, Any], Array],
        # (outputs, targets, weights) -> the product with M.
        output_hessian: Callable[[Array, Any, Array], Product],
        samples: Samples,
        elements: int,
        n: int,
    ) -> None:
        self._library, self._outputs, self._samples = library, outputs, samples
        self._output_hessian = output_hessian
        self._elements, self.cost = elements, elements * n / 2
        self._jacobian: Array = None
        self._compiled_columns = library.compile(self._columns)
        self._compiled_matrix = library.compile(self._matrix)

    def __call__(self, x: Array, idx: Any) -> Array:
        """The sum of the samples' matrices."""
        if self._jacobian is None:
            self._jacobian = self._compiled_columns(x, self._chunk(slice(None)))
        whole = self._samples.size(idx) == self._samples.n
        J = self._jacobian if whole else self._jacobian[idx]
        return self._compiled_matrix(J, x, self._chunk(slice(None) if whole else idx))

    def _chunk(self, idx: Any) -> Any:
        """All samples of a set at once, without padding."""
        return next(self._samples.chunks(idx, self._samples.size(idx)))

    def _columns(self, x: Array, chunk: Chunk) -> Array:
        """J, of shape (samples, outputs, n)."""
        z, linearized = self._library.linearize(lambda x: self._outputs(x, chunk.inputs), x)
        jvp, _ = self._library.jacobian(linearized, z)
        columns = self._library.columns(jvp, np.eye(x.shape[0], dtype=x.dtype))
        xp = self._library.xp
        return xp.moveaxis(columns.reshape(x.shape[0], z.shape[0], self._elements), 0, 2)

    def _matrix(self, J: Array, x: Array, chunk: Chunk) -> Array:
        xp, (rows, k, n) = self._library.xp, J.shape
        z = self._outputs(x, chunk.inputs)
        hessian = self._output_hessian(z, chunk.targets, chunk.w)
        units = np.eye(k, dtype=x.dtype)
        M = [hessian((xp.ones_like(z).reshape(rows, k) * u).reshape(z.shape)) for u in units]
        MJ = xp.stack([column.reshape(rows, k) for column in M], 2) @ J
        return J.reshape(rows * k, n).T @ MJ.reshape(rows * k, n)
