"""Linear layers that see each sample once: their squared gradients come from one backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk


@dataclass
class LinearUse:
    """A Linear layer that sees each sample once, as one row of its inputs.

    Attributes
    ----------
    layer : nn.Linear
        The layer.
    weight, bias : int or None
        The positions of its parameters among the variables; None: not a variable, or used
        elsewhere too.
    overwritten : bool
        Whether the model writes into the layer's outputs (a relu in place): it then gets a copy.
    """

    layer: nn.Linear
    weight: int | None
    bias: int | None
    overwritten: bool

    def watch(self, seen: dict[nn.Module, tuple[Tensor, Tensor]]) -> RemovableHandle:
        """Note inputs and outputs in `seen`."""

        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen[module] = (args[0], output)
            return output.clone() if self.overwritten else output

        return self.layer.register_forward_hook(hook)

    def square(self, a: Tensor, delta: Tensor, squares: list[Tensor | None]) -> None:
        """Enter the sums of squared gradients, from the inputs `a` and the outputs' gradient."""
        delta2 = delta.detach().square()
        if self.weight is not None:
            squares[self.weight] = delta2.T @ a.detach().to(delta2.dtype).square()
        if self.bias is not None:
            squares[self.bias] = delta2.sum(0)


def single_uses(model: FlatModel, probe: Chunk) -> list[LinearUse]:
    """The Linear layers that see each sample once, found by a forward pass of a few samples."""
    candidates = {
        layer: f"{name}." if name else ""
        for name, layer in model.model.named_modules()
        if type(layer) is nn.Linear and not layer._forward_hooks and not layer._forward_pre_hooks
    }
    # The output of every call, and its version then; -1: its rows are not the samples
    calls: dict[nn.Module, list[tuple[Tensor, int]]] = {layer: [] for layer in candidates}

    def note(layer: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        rows = bool(args) and args[0].shape[:-1] == (len(probe[2]),)
        calls[layer].append((out, out._version if rows else -1))

    with _hooked(candidates, note):
        parameters = model.leaves(model.x0)
        reads = _reads(model(parameters, probe[0]), parameters)
    once = {name: i for i, name in enumerate(model.slices()) if reads[i] == 1}
    uses = [
        LinearUse(
            layer, once.get(f"{name}weight"), once.get(f"{name}bias"), out._version != version
        )
        for layer, name in candidates.items()
        if len(calls[layer]) == 1
        for out, version in calls[layer]
        if version >= 0
    ]
    return [use for use in uses if (use.weight, use.bias) != (None, None)]


@contextmanager
def _hooked(layers: Iterable[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _reads(z: Tensor, parameters: list[Tensor]) -> list[int]:
    """How many times the graph of `z` reads each parameter."""
    count: Counter[int] = Counter()
    waiting, seen = [z.grad_fn], {z.grad_fn}
    while waiting:
        node = waiting.pop()
        for child, _ in node.next_functions if node is not None else ():
            variable = getattr(child, "variable", None)
            if variable is not None:
                count[id(variable)] += 1
            elif child not in seen:
                seen.add(child)
                waiting.append(child)
    return [count[id(parameter)] for parameter in parameters]
