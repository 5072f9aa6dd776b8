"""Linear layers that see each sample once: their squared gradients come from one backward pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Forward


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


class LinearCalls:
    """Notes, within it, every call of a Linear layer.

    Parameters
    ----------
    model : FlatModel
        The model.
    samples : int
        How many it is called with.
    """

    def __init__(self, model: FlatModel, samples: int) -> None:
        self._model, self._samples = model, samples
        self._names = {
            layer: f"{name}." if name else ""
            for name, layer in model.model.named_modules()
            if type(layer) is nn.Linear
            and not layer._forward_hooks
            and not layer._forward_pre_hooks
        }
        # The output of every call, and its version then; None: its rows are not the samples
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
        """The layers that have seen each sample once, in a pass that was made within."""
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
    """How often it was written into; None for what torch.func has wrapped."""
    try:
        return out._version
    except RuntimeError:
        return None


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
