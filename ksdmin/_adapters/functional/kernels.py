"""What is computed on one chunk of samples: pure functions of arrays, which a library may compile.

All derivatives come from one operation of a library, ``vjp(f, x) -> (f(x), u -> J^T u)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.arguments import REAL_LOSS, check_real
from ksdmin._adapters.curvature import Product, SampleLoss, off_diagonal
from ksdmin._adapters.functional.library import Chunk, Library
from ksdmin._adapters.functional.losses import RandomGenerator
from ksdmin._problem.arrays import Array


@dataclass(frozen=True)
class Kernels:
    """A model and its loss, at a point and on a chunk."""

    library: Library
    outputs: Callable[[Array, Any], Array]  # the model: (x, inputs) -> one row per sample
    loss: SampleLoss
    curvature: str  # a provider's name

    def value(self, x: Array, chunk: Chunk) -> tuple[Array]:
        return (self.library.partial_sums(chunk.w * self.losses(x, chunk)),)

    def gradient(self, x: Array, chunk: Chunk) -> tuple[Array, Array]:
        losses, g = self._losses_and_gradient(x, chunk)
        return self.library.partial_sums(chunk.w * losses), g

    def diagonal(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        losses, g, squares = self.library.per_sample_sums(self.losses, x, chunk)
        return self.library.partial_sums(chunk.w * losses), g, squares

    def set_up(self, x: Array, chunk: Chunk, generator: RandomGenerator | None) -> Any:
        """What all products on a chunk share."""
        if self.curvature == "hessian":
            return self.library.vjp(lambda x: self._losses_and_gradient(x, chunk)[1], x)[1]
        z, linearized = self.library.linearize(lambda x: self.outputs(x, chunk.inputs), x)
        targets = chunk.targets
        if self.curvature == "gauss-newton":
            return linearized, z, targets, chunk.w
        if self.curvature == "fisher":
            assert self.loss.draw is not None
            assert generator is not None
            targets = self.loss.draw(z, targets, generator)
            # the expectation of r r^T must be the weighted Hessian, so a weight enters only once
            return linearized, z, self._residual(z, targets, self.library.xp.sqrt(chunk.w))
        return linearized, z, self._residual(z, targets, chunk.w)

    def multiply(self, state: Any, v: Array) -> Array:
        """A product, from what `set_up` returned: the Hessian, symmetric, is its own transpose."""
        if self.curvature == "hessian":
            return state(v)
        linearized, z, *rest = state
        jvp, vjp = self.library.jacobian(linearized, z)
        if self.curvature == "gauss-newton":
            return _curvature.gauss_newton(jvp, vjp, self._loss_hessian(z, *rest))(v)
        return _curvature.fisher(jvp, vjp, *rest)(v)

    def outputs_of_chunk(self, x: Array, chunk: Chunk) -> Array:
        z, rows = self.outputs(x, chunk.inputs), chunk.w.shape[0]
        if z.shape[:1] != (rows,):
            raise ValueError(
                f"the model returned shape {tuple(z.shape)} for {rows} samples: it must return one "
                "row per sample"
            )
        return z

    def losses(self, x: Array, chunk: Chunk) -> Array:
        losses = self.loss.losses(self.outputs_of_chunk(x, chunk), chunk.targets)
        check_real(losses, "loss", REAL_LOSS)  # those of complex outputs may be real
        return losses

    def _losses_and_gradient(self, x: Array, chunk: Chunk) -> tuple[Array, Array]:
        """The losses, and the gradient of their weighted sum."""
        losses, pullback = self.library.vjp(lambda x: self.losses(x, chunk), x)
        return losses, pullback(chunk.w)

    def _residual(self, z: Array, targets: Any, w: Array) -> Array:
        """The gradient of each weighted loss in the outputs."""
        return self.library.vjp(lambda z: self.loss.losses(z, targets), z)[1](w)

    def _loss_hessian(self, z: Array, targets: Any, w: Array) -> Product:
        """The Hessian of the losses in the outputs: in closed form, or by autodiff."""
        if self.loss.hessian is not None:
            return self.loss.hessian(z, targets, w)
        return self.library.vjp(lambda z: self._residual(z, targets, w), z)[1]

    # The rows of the Jacobian, M^1/2 J, where the diagonal matrix M has the second derivatives of
    # the losses in the outputs

    def rows(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """M^1/2 J, the slopes of the losses, and M^1/2; padding has rows of zeros."""
        xp = self.library.xp
        # with the derivatives come the outputs; a forward pass of their own compiles longer
        z, J = self.library.rows_of_samples(self.outputs, x, chunk.inputs)
        curved = self._loss_hessian(z, chunk.targets, chunk.w)(xp.ones_like(z))
        root = xp.sqrt(xp.maximum(curved, 0.0)).reshape(-1)
        slopes = self._residual(z, chunk.targets, chunk.w)
        return J.reshape(-1, x.shape[0]) * root[:, None], slopes.reshape(-1), root

    def losses_and_slopes(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """The partial sums of the weighted losses, their slopes in the outputs, and the outputs."""
        z = self.outputs(x, chunk.inputs)
        losses = self.library.partial_sums(chunk.w * self.loss.losses(z, chunk.targets))
        return losses, self._residual(z, chunk.targets, chunk.w).reshape(-1), z

    def off_diagonal(self, x: Array, chunk: Chunk) -> Array:
        """The relative size of the off-diagonal part of M."""
        z = self.outputs(x, chunk.inputs)
        return off_diagonal(self._loss_hessian(z, chunk.targets, chunk.w), z)

    # The curvature matrix of a model that is linear in its parameters: J^T M J

    def columns(self, x: Array, chunk: Chunk) -> Array:
        """J, of shape (samples, outputs, n)."""
        z, linearized = self.library.linearize(lambda x: self.outputs(x, chunk.inputs), x)
        jvp, _ = self.library.jacobian(linearized, z)
        columns = self.library.columns(jvp, np.eye(x.shape[0], dtype=x.dtype))
        return self.library.xp.moveaxis(columns.reshape(x.shape[0], z.shape[0], -1), 0, 2)

    def matrix(self, J: Array, x: Array, chunk: Chunk) -> Array:
        """The sum of the samples' matrices, from their J."""
        xp, (rows, k, n) = self.library.xp, J.shape
        z = self.outputs(x, chunk.inputs)
        M = self._output_hessian(z, chunk.targets, chunk.w)
        units = np.eye(k, dtype=x.dtype)
        columns = [M((xp.ones_like(z).reshape(rows, k) * u).reshape(z.shape)) for u in units]
        MJ = xp.stack([column.reshape(rows, k) for column in columns], 2) @ J
        return J.reshape(rows * k, n).T @ MJ.reshape(rows * k, n)

    def _output_hessian(self, z: Array, targets: Any, w: Array) -> Product:
        if self.curvature == "empirical-fisher":
            return _curvature.outer_product(self._residual(z, targets, w))
        return self._loss_hessian(z, targets, w)
