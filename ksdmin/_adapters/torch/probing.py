"""What a few samples show of a model, from one pass over them that all checks share.

For example, which Linear layers see each sample once, so that one backward pass gives their squared
gradients.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ksdmin._adapters.torch.flat_model import FlatModel, flatten
from ksdmin._adapters.torch.kernels import Chunk, Forward, Kernels, nodes


@dataclass
class LinearUse:
    """A Linear layer that sees each sample once, as one row of its inputs."""

    layer: nn.Linear  # the layer
    # The positions of its parameters among the variables; None: not a variable, or used elsewhere
    # too.
    weight: int | None
    bias: int | None
    # Whether the model writes into the layer's outputs (a relu in place): it then gets a copy.
    overwritten: bool

    def watch(self, seen: dict[nn.Module, tuple[Tensor, Tensor]]) -> RemovableHandle:
        """Record inputs and outputs in `seen`."""

        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen[module] = (args[0], output)
            return output.clone() if self.overwritten else output

        return self.layer.register_forward_hook(hook)

    def square(self, a: Tensor, delta: Tensor, squares: list[Tensor | None]) -> None:
        """Write the sums of squared gradients, from the inputs `a` and the outputs' gradient."""
        delta2 = delta.detach().square()
        if self.weight is not None:
            squares[self.weight] = delta2.T @ a.detach().to(delta2.dtype).square()
        if self.bias is not None:
            squares[self.bias] = delta2.sum(0)


class LinearCalls:
    """Records, within it, every call of a Linear layer."""

    def __init__(self, model: FlatModel, samples: int) -> None:
        self._model, self._samples = model, samples
        self._names = {
            layer: f"{name}." if name else ""
            for name, layer in model.model.named_modules()
            if type(layer) is nn.Linear
            and not layer._forward_hooks
            and not layer._forward_pre_hooks
        }
        # the output of every call, and its version then; None: its rows are not the samples
        self._calls: dict[nn.Module, list[tuple[Tensor, int | None]]] = {
            layer: [] for layer in self._names
        }
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> None:
        self._handles = [layer.register_forward_hook(self._note) for layer in self._names]

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, layer: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        rows = bool(args) and args[0].shape[:-1] == (self._samples,)
        self._calls[layer].append((out, _version(out) if rows else None))

    def uses(self, forward: Forward) -> list[LinearUse]:
        """The layers that saw each sample once, in a pass made within."""
        reads = _reads(forward.z, forward.parameters)
        once = {name: i for i, name in enumerate(self._model.slices()) if reads[i] == 1}
        uses = [
            LinearUse(
                layer, once.get(f"{name}weight"), once.get(f"{name}bias"), _version(out) != version
            )
            for layer, name in self._names.items()
            if len(self._calls[layer]) == 1
            for out, version in self._calls[layer]
            if version is not None
        ]
        return [use for use in uses if (use.weight, use.bias) != (None, None)]


def _version(out: Tensor) -> int | None:
    """How often a tensor was written into; None for one that torch.func has wrapped."""
    try:
        return out._version
    except RuntimeError:
        return None


def _reads(z: Tensor, parameters: list[Tensor]) -> list[int]:
    """How many times the graph of `z` reads each parameter."""
    read = (child for node in nodes(z) for child, _ in node.next_functions)
    count = Counter(id(getattr(child, "variable", None)) for child in read)
    return [count[id(parameter)] for parameter in parameters]


# Relative difference between two ways to compute a product: TF32 and bfloat16 cause this much.
MAX_DIFFERENCE = 1e-2


class Probing:
    """A forward pass of a few samples beside x0, and what is differentiated over its graph."""

    def __init__(self, kernels: Kernels, chunk: Chunk) -> None:
        self.kernels, self.chunk, self._model = kernels, chunk, kernels.model
        # Where the pass is made: at x0 itself a fitted model has nothing left but rounding.
        self.x = self._model.near_x0()
        self._linear = LinearCalls(self._model, len(chunk[2]))
        with self._model.restored_randomness(), self._linear:
            self.forward: Forward = kernels.forward(self.x, chunk)
        # The sum of the losses, with its graph.
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
        """The curvature times the direction; errors of the model's derivatives pass."""
        return self.kernels.product_over(self.forward)(self.direction).detach()

    def agrees(self, found: Tensor) -> bool:
        """Whether another way to compute the product gives the same."""
        expected = self.product.to(found.dtype)
        return bool((found - expected).norm() <= MAX_DIFFERENCE * expected.norm())

    @cached_property
    def linear_uses(self) -> list[LinearUse]:
        """The Linear layers that see each sample once."""
        return self._linear.uses(self.forward)

    def has_convolutions(self) -> bool:
        """Whether the graph has convolutions."""
        return any(node.name().startswith("ConvolutionBackward") for node in nodes(self.forward.z))


def lean_convolutions_work(probing: Probing) -> bool:
    """Whether the model has convolutions, and products with ours instead are the same."""
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
