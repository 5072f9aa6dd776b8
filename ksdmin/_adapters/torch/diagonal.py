"""The diagonal of the empirical Fisher matrix: squared gradients, summed over samples.

For a Linear layer that a sample passes once, sum_i (delta_i a_i^T)^2 = (delta^2)^T (a^2): no
gradient of a single sample is needed, and the sums come with the gradient's own pass. All other
parameters take the gradient of every sample: by vmap, or where a model does not bear that, by a
backward pass a sample. All are exact; but as the latter is dear, a problem asks for a few samples
only (`ENOUGH`) where a model has such parameters.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.model import FlatModel, flat
from ksdmin._adapters.torch.random import restore, states

log = logging.getLogger("ksdmin")

AT_ONCE = 8  # samples of one forward pass, where each takes a backward pass of its own
AGREEMENT = 1e-2  # relative difference between the two ways that rounding may make

Squares = list[Tensor]
"""The sum of the squared gradients, by parameter."""


@dataclass
class Passage:
    """A Linear layer that each sample passes once, as one row.

    Attributes
    ----------
    layer : nn.Linear
        The layer.
    weight, bias : int or None
        Where its parameters are among the variables; None: not there, or used elsewhere too.
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
        """From the inputs `a` and the gradient in the outputs."""
        delta2 = delta.detach().square()
        if self.weight is not None:
            squares[self.weight] = delta2.T @ a.detach().to(delta2.dtype).square()
        if self.bias is not None:
            squares[self.bias] = delta2.sum(0)


class Diagonal:
    """The kernel that computes gradient and diagonal in one pass.

    Parameters
    ----------
    kernels : Kernels
        The model and its loss.
    few : Chunk
        A few samples, to see which layers are passed once and how others are dealt with.
    budget : float
        Bytes for the gradients of single samples.

    Attributes
    ----------
    most : int or None
        How many samples' gradients `budget` holds; None where none are needed.
    capturable : bool
        Whether it may go into a CUDA graph: a backward pass a sample would make a huge one.
    """

    def __init__(self, kernels: Kernels, few: Chunk, budget: float) -> None:
        self._kernels, self._model = kernels, kernels.model
        self._passages = _passages(self._model, few)
        covered = {i for passage in self._passages for i in (passage.weight, passage.bias)}
        self._rest = [i for i in range(len(self._model.sizes)) if i not in covered]
        self._square_samples: Callable[[Tensor, Chunk], Squares] = self._by_vmap
        self.most: int | None = None
        if self._rest:
            size = sum(self._model.sizes[i] for i in self._rest)
            self.most = max(1, int(budget // (size * self._model.x0.element_size())))
            self._square_samples = self._choose(few)
        self.capturable = self._square_samples == self._by_vmap

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the losses, its gradient, and the sum of the squared gradients."""
        inputs, targets, w = chunk
        parameters = self._model.leaves(x)
        before = states(self._model.device) if self._model.random else None
        seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        hooks = [passage.watch(seen) for passage in self._passages]
        try:
            z = self._model(parameters, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        total = self._kernels.total(z, targets, w)
        outputs = [seen[passage.layer][1] for passage in self._passages]
        grads = torch.autograd.grad(total, [*parameters, *outputs], allow_unused=True)
        g, deltas = grads[: len(parameters)], grads[len(parameters) :]
        squares: list[Tensor | None] = [None] * len(parameters)
        for passage, delta in zip(self._passages, deltas, strict=True):
            if delta is not None:
                passage.square(seen[passage.layer][0], delta, squares)
        if self._rest:
            with self._model.same_draws():
                if before is not None:  # the same masks once more
                    restore(before, self._model.device)
                for i, piece in zip(self._rest, self._square_samples(x, chunk), strict=True):
                    squares[i] = piece
        shapes = self._model.shapes
        return total.detach(), flat(g, shapes, x), flat(squares, shapes, x).to(x.dtype)

    def _by_vmap(self, x: Tensor, chunk: Chunk) -> Squares:
        """All samples' gradients in the parameters that no layer explains, at once."""
        fixed = self._model.split(x)

        def loss(some: list[Tensor], one_input: Any, one_target: Any, weight: Tensor) -> Tensor:
            merged = list(fixed)
            for i, piece in zip(self._rest, some, strict=True):
                merged[i] = piece
            z = self._model(merged, _batch_of_one(one_input))
            return self._kernels.total(z, _batch_of_one(one_target), weight[None])

        per_sample = torch.func.vmap(
            torch.func.grad(loss), in_dims=(None, 0, 0, 0), randomness="different"
        )
        some = [fixed[i] for i in self._rest]
        sums: Squares = [torch.zeros_like(piece) for piece in some]
        for part in self._parts(chunk, self.most or 1):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                grads = per_sample(some, *part)
            for total, g in zip(sums, grads, strict=True):
                total += g.square().sum(0)
        return sums

    def _one_by_one(self, x: Tensor, chunk: Chunk) -> Squares:
        """The same, with a backward pass a sample."""
        sums: Squares = [torch.zeros_like(self._model.split(x)[i]) for i in self._rest]
        for inputs, targets, w in self._parts(chunk, AT_ONCE):
            parameters = self._model.leaves(x)
            losses = self._kernels.losses(self._model(parameters, inputs), targets, len(w)) * w
            some = [parameters[i] for i in self._rest]
            for one in losses:
                grads = torch.autograd.grad(
                    one, some, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                for total, g in zip(sums, grads, strict=True):
                    total += g.square()
        return sums

    def _parts(self, chunk: Chunk, size: int) -> list[Chunk]:
        """The chunk in pieces; in one where masks are drawn for all of it at once."""
        n = len(chunk[2])
        size = n if self._model.random else size
        return [_rows(chunk, slice(at, at + size)) for at in range(0, n, size)]

    def _choose(self, few: Chunk) -> Callable[[Tensor, Chunk], Squares]:
        """The faster way, if it comes to the same."""
        x, shapes = self._model.x0, [self._model.shapes[i] for i in self._rest]
        with self._model.same_draws():
            right = flat(self._one_by_one(x, few), shapes, x)
        try:
            with self._model.same_draws():
                difference = (flat(self._by_vmap(x, few), shapes, x) - right).norm()
            reason = f"it differs by {float(difference):.1e}"
            agrees = bool(difference <= AGREEMENT * right.norm())
        except Exception as error:  # whatever a module may raise under vmap
            reason, agrees = str(error), False
        if agrees:
            return self._by_vmap
        log.warning("ksdmin: a backward pass a sample for the diagonal, not vmap: %s", reason)
        return self._one_by_one


def _passages(model: FlatModel, few: Chunk) -> list[Passage]:
    """The Linear layers that see each sample once, as one row."""
    candidates = {
        layer: f"{name}." if name else ""
        for name, layer in model.model.named_modules()
        if type(layer) is nn.Linear and not layer._forward_hooks and not layer._forward_pre_hooks
    }
    calls: dict[nn.Module, list[tuple[Tensor, int]]] = {layer: [] for layer in candidates}

    def note(layer: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        rows = bool(args) and args[0].shape[:-1] == (len(few[2]),)
        calls[layer].append((out, out._version if rows else -1))

    hooks = [layer.register_forward_hook(note) for layer in candidates]
    try:
        parameters = model.leaves(model.x0)
        uses = _uses(model(parameters, few[0]), parameters)
    finally:
        for hook in hooks:
            hook.remove()
    once = {name: i for i, name in enumerate(model.slices()) if uses[i] == 1}
    passages = [
        Passage(layer, once.get(f"{name}weight"), once.get(f"{name}bias"), out._version != version)
        for layer, name in candidates.items()
        if len(calls[layer]) == 1
        for out, version in calls[layer]
        if version >= 0
    ]
    return [passage for passage in passages if (passage.weight, passage.bias) != (None, None)]


def _uses(z: Tensor, parameters: list[Tensor]) -> list[int]:
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


def _batch_of_one(sample: Any) -> Any:
    return tuple(map(_batch_of_one, sample)) if isinstance(sample, tuple) else sample[None]


def _rows(data: Any, part: slice) -> Any:
    return tuple(_rows(piece, part) for piece in data) if isinstance(data, tuple) else data[part]
