"""What a few samples show of a model: one pass over them, which all checks share."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch.flat_model import flatten
from ksdmin._adapters.torch.kernels import Chunk, Forward, Kernels
from ksdmin._adapters.torch.linear_use import LinearCalls, LinearUse

# Relative difference between two ways to the same product: TF32 and bfloat16 make as much.
MAX_DIFFERENCE = 1e-2


class Probing:
    """A forward pass of a few samples beside x0, and what is differentiated over its graph.

    Parameters
    ----------
    kernels : Kernels
        The model and its loss.
    chunk : Chunk
        The samples.

    Attributes
    ----------
    x : Tensor
        Where the pass is made: at x0 itself a fitted model has nothing left but rounding.
    forward : Forward
        The pass.
    total : Tensor
        The sum of the losses, with its graph.
    """

    def __init__(self, kernels: Kernels, chunk: Chunk) -> None:
        self.kernels, self.chunk, self._model = kernels, chunk, kernels.model
        self.x = self._model.near_x0()
        self._linear = LinearCalls(self._model, len(chunk[2]))
        with self._model.restored_randomness(), self._linear:
            self.forward: Forward = kernels.forward(self.x, chunk)
        self.total = kernels.total_loss(self.forward.z, chunk[1], chunk[2])

    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradient by parameter, None where the loss does not depend on one."""
        parameters = self.forward.parameters
        if not self.total.requires_grad:
            return (None,) * len(parameters)
        return self._model.derivatives(
            parameters, self.total, parameters, retain_graph=True, allow_unused=True
        )

    def gradient(self) -> Tensor:
        """The gradient as one vector."""
        return flatten(self.gradients(), self._model.shapes, self.x)

    @cached_property
    def direction(self) -> Tensor:
        """A vector to multiply by."""
        x = self.x
        return torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).cos()

    @cached_property
    def product(self) -> Tensor:
        """The curvature times the direction; it may raise what the model's derivatives do."""
        return self.kernels.product_over(self.forward)(self.direction).detach()

    def agrees(self, found: Tensor) -> bool:
        """Whether another way to the product has come to the same."""
        expected = self.product.to(found.dtype)
        return bool((found - expected).norm() <= MAX_DIFFERENCE * expected.norm())

    @cached_property
    def linear_uses(self) -> list[LinearUse]:
        """The Linear layers that see each sample once."""
        return self._linear.uses(self.forward)

    def has_convolutions(self) -> bool:
        """Whether there are any in the graph."""
        return any(node.name().startswith("ConvolutionBackward") for node in nodes(self.forward.z))


def nodes(z: Tensor) -> list[Any]:
    """The nodes of the graph of a tensor."""
    waiting: list[Any] = [z.grad_fn]
    seen: set[Any] = {z.grad_fn}
    found = []
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        found.append(node)
        for child, _ in node.next_functions:
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return found


def lean_convolutions_work(probing: Probing) -> bool:
    """Whether the model has convolutions, and products with ours in their place are the same."""
    kernels = probing.kernels
    if not kernels.curvature or kernels.fault or not probing.has_convolutions():
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
