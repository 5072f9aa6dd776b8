"""What a few samples show of a model, from one pass over them that all checks share."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ksdmin._adapters.torch.kernels import Chunk, Forward, Kernels, nodes

# Relative difference between two ways to compute the same: TF32 and bfloat16 cause this much.
MAX_DIFFERENCE = 1e-2


def alike(found: Tensor, expected: Tensor) -> bool:
    """Whether two ways to compute something give the same."""
    return bool((found - expected).norm() <= MAX_DIFFERENCE * expected.norm())


class Probing:
    """A forward pass of a few samples beside x0, and what is differentiated over its graph."""

    def __init__(self, kernels: Kernels, chunk: Chunk) -> None:
        self.kernels, self.chunk, self._model = kernels, chunk, kernels.model
        # Where the pass is made: at x0 itself a fitted model has nothing left but rounding.
        self.x = self._model.near_x0()
        with self._model.restored_randomness():
            self.forward: Forward = kernels.forward(self.x, chunk)
        # The sum of the losses, with its graph.
        self.total = kernels.total_loss(self.forward.z, chunk[1], chunk[2])

    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradient by parameter, None where the loss does not depend on one."""
        parameters = self.forward.parameters
        if not self.total.requires_grad:
            return (None,) * len(parameters)
        return self._model.derivatives(parameters, self.total, retain_graph=True)

    def gradient(self) -> Tensor:
        """The gradient as one vector."""
        return self._model.flat(self.gradients(), self.x)

    @cached_property
    def direction(self) -> Tensor:
        """A vector to multiply by."""
        x = self.x
        return torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).cos()

    @cached_property
    def product(self) -> Tensor:
        """The curvature times the direction; errors of the model's derivatives pass."""
        return self.kernels.product_over(self.forward)(self.direction).detach()

    def agrees(self, found: Tensor) -> bool:
        """Whether another way to compute the product gives the same."""
        return alike(found, self.product.to(found.dtype))


def lean_convolutions_work(probing: Probing) -> bool:
    """Whether the model has convolutions, and products with ours instead are the same."""
    kernels = probing.kernels
    names = (node.name() for node in nodes(probing.forward.z))
    convolves = any(name.startswith("ConvolutionBackward") for name in names)
    if not kernels.curvature or kernels.fault or not convolves:
        return False
    kernels.lean_convolutions = True
    try:
        with kernels.model.restored_randomness():
            found = kernels.product(probing.x, probing.chunk)(probing.direction)
        return probing.agrees(found)
    except RuntimeError:  # such as a model that differentiates with torch.func
        return False
    finally:
        kernels.lean_convolutions = False
