"""The diagonal of the empirical Fisher matrix: squared gradients, summed over samples.

For a Linear layer that a sample passes once, sum_i (delta_i a_i^T)^2 = (delta^2)^T (a^2): no
gradient of a single sample is needed, and the sums come with the gradient's own pass. All other
parameters take the gradient of every sample, by vmap. Both are exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ksdmin._adapters.torch_kernels import Chunk, Kernels
from ksdmin._adapters.torch_model import flat


class Diagonal:
    """The kernel that computes gradient and diagonal in one pass.

    Parameters
    ----------
    kernels : Kernels
        The model and its loss.
    inputs : tensor or tuple
        A few samples, to see which layers are passed once.
    chunk : int
        How many samples' gradients are held at once where they are needed.
    """

    def __init__(self, kernels: Kernels, inputs: Any, chunk: int) -> None:
        self._kernels, self._model, self._chunk = kernels, kernels.model, chunk
        self._layers = _passed_once(self._model, inputs)
        names = list(self._model.slices())
        covered = {f"{prefix}{kind}" for prefix, _ in self._layers for kind in ("weight", "bias")}
        self._rest = [i for i, name in enumerate(names) if name not in covered]
        self._index = {name: i for i, name in enumerate(names)}

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the losses, its gradient, and the sum of the squared gradients."""
        inputs, targets, w = chunk
        parameters = self._model.leaves(x)
        seen: dict[str, tuple[Tensor, Tensor]] = {}
        hooks = [_watch(layer, prefix, seen) for prefix, layer in self._layers]
        try:
            z = self._model(parameters, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        total = self._kernels.total(z, targets, w)
        outputs = [seen[prefix][1] for prefix, _ in self._layers]
        grads = torch.autograd.grad(total, [*parameters, *outputs], allow_unused=True)
        squares: list[Tensor | None] = [None] * len(parameters)
        for (prefix, _), delta in zip(self._layers, grads[len(parameters) :], strict=True):
            self._square_layer(prefix, seen[prefix][0], delta, squares)
        if self._rest:
            self._square_samples(parameters, inputs, targets, w, squares)
        shapes = self._model.shapes
        g = flat(grads[: len(parameters)], shapes, x)
        return total.detach(), g, flat(squares, shapes, x)

    def _square_layer(
        self, prefix: str, a: Tensor, delta: Tensor, squares: list[Tensor | None]
    ) -> None:
        delta2 = delta.detach().square()
        if (i := self._index.get(f"{prefix}weight")) is not None:
            squares[i] = delta2.T @ a.detach().square()
        if (i := self._index.get(f"{prefix}bias")) is not None:
            squares[i] = delta2.sum(0)

    def _square_samples(
        self,
        parameters: list[Tensor],
        inputs: Any,
        targets: Any,
        w: Tensor,
        squares: list[Tensor | None],
    ) -> None:
        """The parameters that no single layer explains: each sample's gradient, squared."""
        fixed = [p.detach() for p in parameters]

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
        sums = [torch.zeros_like(piece) for piece in some]
        for at in range(0, len(w), self._chunk):
            part = slice(at, at + self._chunk)
            grads = per_sample(some, _rows(inputs, part), _rows(targets, part), w[part])
            for total, g in zip(sums, grads, strict=True):
                total += g.square().sum(0)
        for i, piece in zip(self._rest, sums, strict=True):
            squares[i] = piece


def _watch(
    layer: nn.Module, prefix: str, seen: dict[str, tuple[Tensor, Tensor]]
) -> RemovableHandle:
    def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen[prefix] = (args[0], output)

    return layer.register_forward_hook(hook)


def _passed_once(model: Any, inputs: Any) -> list[tuple[str, nn.Linear]]:
    """The Linear layers that see each sample once, as one row, and share no parameter."""
    owners: dict[int, int] = {}
    for module in model.model.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    candidates = {
        f"{name}." if name else "": layer
        for name, layer in model.model.named_modules()
        if type(layer) is nn.Linear
        and all(owners[id(p)] == 1 for p in layer.parameters(recurse=False))
    }
    calls: dict[str, list[tuple[int, Tensor, int]]] = {prefix: [] for prefix in candidates}

    def note(prefix: str) -> Any:
        return lambda module, args, out: calls[prefix].append((args[0].ndim, out, out._version))

    hooks = [layer.register_forward_hook(note(prefix)) for prefix, layer in candidates.items()]
    try:
        with torch.no_grad():
            model(model.split(model.x0), inputs)
    finally:
        for hook in hooks:
            hook.remove()

    def once(prefix: str) -> bool:
        """One call, on rows, whose output nobody has overwritten since (relu in place does)."""
        return len(calls[prefix]) == 1 and all(
            ndim == 2 and out._version == version for ndim, out, version in calls[prefix]
        )

    return [(prefix, layer) for prefix, layer in candidates.items() if once(prefix)]


def _batch_of_one(sample: Any) -> Any:
    return tuple(part[None] for part in sample) if isinstance(sample, tuple) else sample[None]


def _rows(data: Any, part: slice) -> Any:
    return tuple(piece[part] for piece in data) if isinstance(data, tuple) else data[part]
