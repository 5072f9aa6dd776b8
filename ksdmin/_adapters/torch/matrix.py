"""The whole curvature matrix of a model with few parameters, summed over samples.

A model that is one Linear layer has the blocks X^T M_ab X, where M holds the second derivatives of
the losses in the outputs: matrix products, as fast as a processor can be. Any other model takes
the products with all unit vectors, many at once by vmap.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from ksdmin._adapters.torch.kernels import Chunk, Kernels, Product
from ksdmin._adapters.torch.probing import LinearUse, Probing

log = logging.getLogger("ksdmin")

# A model other than one Linear layer: with more parameters a Krylov space is less work in any case.
MAX_UNKNOWNS = 300
# What fits the memory budget: the matrix, a chunk's part of it, and two copies on the way.
MATRIX_COPIES = 4
# A product within vmap takes about as long as a single one (measured: 0.4 to 0.9 of it), as both
# wait for memory: so many times the operations of a large matrix product.
VMAP_COST = 8


class LinearMatrix:
    """The kernel for a model that is one Linear layer.

    Attributes
    ----------
    cost : float
        Of a matrix, in floating-point operations of a product.
    products : int
        What a matrix counts as: the data are read once.
    """

    products = 1

    def __init__(self, kernels: Kernels, use: LinearUse, outputs: int) -> None:
        self._kernels, self._use, self._outputs = kernels, use, outputs
        weight, bias = use.weight is not None, use.bias is not None
        features = use.layer.in_features if weight else 0
        self._ones = bias
        self.cost = (features + bias) * (outputs + 1) / 4
        # Where each parameter stands among (output, feature), the bias being the last feature.
        place = torch.arange(outputs * (features + bias)).reshape(outputs, features + bias)
        parts = {use.weight: place[:, :features], use.bias: place[:, features:]}
        order = [parts[i].reshape(-1) for i in sorted(i for i in parts if i is not None)]
        self._order = torch.cat(order).to(kernels.model.device)

    def __call__(self, x: Tensor, chunk: Chunk) -> Tensor:
        """The sum of the samples' matrices."""
        inputs, targets, w = chunk
        a, z = self._inputs_and_outputs(x, inputs)
        hessian = self._kernels.output_hessian(z, targets, w)
        size, outputs = a.shape[1], self._outputs
        blocks = a.new_zeros((outputs, size, outputs, size))
        for column in range(outputs):
            unit = torch.zeros_like(z).reshape(len(w), outputs)
            unit[:, column] = 1
            M = hessian(unit.reshape(z.shape)).reshape(len(w), outputs).to(a.dtype)
            for row in range(column + 1):
                block = (a * M[:, row : row + 1]).T @ a
                blocks[row, :, column] = block
                blocks[column, :, row] = block
        return blocks.reshape(outputs * size, -1)[self._order][:, self._order]

    def _inputs_and_outputs(self, x: Tensor, inputs: object) -> tuple[Tensor, Tensor]:
        """The inputs of the layer, with a one for the bias; the model's outputs."""
        seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        hook, model = self._use.watch(seen), self._kernels.model
        try:
            with torch.no_grad():
                z = model(model.split(x), inputs).detach()
        finally:
            hook.remove()
        a = seen[self._use.layer][0].detach().to(x.dtype)
        a = a if self._use.weight is not None else a[:, :0]
        return torch.cat([a, a.new_ones(len(a), 1)], 1) if self._ones else a, z


class BatchedProducts:
    """The kernel for any model: the products with all unit vectors.

    Attributes
    ----------
    cost, products
        As in :class:`LinearMatrix`.
    max_kept_samples : int
        How many samples' products fit into the memory budget.
    """

    def __init__(self, kernels: Kernels, max_kept_samples: int) -> None:
        self._kernels, self._max_kept_samples = kernels, max_kept_samples
        self.products = kernels.model.x0.numel()
        self.cost = float(VMAP_COST * self.products)

    def __call__(self, x: Tensor, chunk: Chunk) -> Tensor:
        """The sum of the samples' matrices."""
        columns = max(1, self._max_kept_samples // len(chunk[2]))
        return by_columns(self._kernels.product(x, chunk), x, columns)


MatrixKernel = LinearMatrix | BatchedProducts


def by_columns(product: Product, x: Tensor, columns: int) -> Tensor:
    """The matrix of a product, so many `columns` at a time."""
    units = torch.eye(x.numel(), dtype=x.dtype, device=x.device)
    H: Tensor = torch.func.vmap(product, chunk_size=columns)(units)
    return H


def matrix_kernel(probing: Probing, max_kept_samples: int, budget: float) -> MatrixKernel | None:
    """The kernel for a model, checked with a few samples; None where there is no affordable one."""
    kernels = probing.kernels
    n, model = kernels.model.x0.numel(), kernels.model
    too_large = MATRIX_COPIES * n**2 * model.x0.element_size() > budget
    if too_large or kernels.fault or not kernels.curvature or kernels.curvature == "fisher":
        return None
    if model.is_random or model.batch_norms or model.recomputes:
        return None
    candidates: list[MatrixKernel] = [*_linear(probing)]
    if n <= MAX_UNKNOWNS:
        candidates.append(BatchedProducts(kernels, max_kept_samples))
    return next((kernel for kernel in candidates if _agrees(kernel, probing)), None)


def _linear(probing: Probing) -> list[LinearMatrix]:
    """The kernel of a model all of whose parameters are those of one Linear layer."""
    kernels, uses = probing.kernels, probing.linear_uses
    covered = [i for use in uses for i in (use.weight, use.bias) if i is not None]
    if len(uses) != 1 or len(covered) != len(kernels.model.sizes):
        return []
    return [LinearMatrix(kernels, uses[0], uses[0].layer.out_features)]


def _agrees(kernel: MatrixKernel, probing: Probing) -> bool:
    """Whether matrix and products are the same; a model may change what its layer returns."""
    try:
        return probing.agrees(kernel(probing.x, probing.chunk) @ probing.direction)
    except Exception as error:  # whatever a module may raise under vmap
        log.info("ksdmin: no curvature matrix for this model: %s", str(error).split(". ")[0])
        return False
