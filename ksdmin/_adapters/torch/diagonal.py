"""The diagonal of the empirical Fisher matrix: squared gradients, summed over samples.

For a Linear layer that sees each sample once, sum_i (delta_i a_i^T)^2 = (delta^2)^T (a^2): no
gradient of a single sample is needed, and the sums come with the gradient's own backward pass. All
other parameters take the gradient of every sample: by vmap, or where a model fails under vmap, by
one backward pass per sample. All of these are exact; but as gradients per sample are expensive, a
problem whose model has such parameters asks for `DIAGONAL_SAMPLES` samples only.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin._adapters.torch.flat_model import flatten
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.linear_use import single_uses
from ksdmin._adapters.torch.random import generator_states, set_generator_states

log = logging.getLogger("ksdmin")

# Samples that share a forward pass, where each takes a backward pass of its own: a backward pass
# goes through the activations of all of them, so there must not be many.
SAMPLES_PER_FORWARD = 8
# Relative difference between vmap and one backward pass per sample: less is rounding, also in
# bfloat16.
MAX_VMAP_DIFFERENCE = 1e-2

Squares = list[Tensor]
"""The sum of the squared gradients, by parameter."""


class Diagonal:
    """The kernel that computes gradient and diagonal in one pass.

    Parameters
    ----------
    kernels : Kernels
        The model and its loss.
    probe : Chunk
        A few samples, to find the layers that see each sample once, and whether vmap works.
    budget : float
        Bytes for the gradients of single samples.

    Attributes
    ----------
    max_samples : int or None
        How many samples' gradients `budget` holds; None where none are needed.
    capturable : bool
        Whether it may go into a CUDA graph: one backward pass per sample would make a huge one.
    """

    def __init__(self, kernels: Kernels, probe: Chunk, budget: float) -> None:
        self._kernels, self._model = kernels, kernels.model
        self._linear_uses = single_uses(self._model, probe)
        covered = {i for use in self._linear_uses for i in (use.weight, use.bias)}
        self._others = [i for i in range(len(self._model.sizes)) if i not in covered]
        self._square_samples: Callable[[Tensor, Chunk], Squares] = self._by_vmap
        self.max_samples: int | None = None
        if self._others:
            size = sum(self._model.sizes[i] for i in self._others)
            self.max_samples = max(1, int(budget // (size * self._model.x0.element_size())))
            self._square_samples = self._choose(probe)
        self.capturable = self._square_samples == self._by_vmap

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the losses, its gradient, and the sum of the squared gradients."""
        device = self._model.device
        before = generator_states(device) if self._model.is_random else None
        total, g, squares = self._backward(x, chunk)
        if self._others:
            with self._model.restored_randomness():
                if before is not None:  # the same dropout masks once more
                    set_generator_states(before, device)
                for i, piece in zip(self._others, self._square_samples(x, chunk), strict=True):
                    squares[i] = piece
        shapes = self._model.shapes
        return total, flatten(g, shapes, x), flatten(squares, shapes, x).to(x.dtype)

    def _backward(
        self, x: Tensor, chunk: Chunk
    ) -> tuple[Tensor, tuple[Tensor | None, ...], list[Tensor | None]]:
        """The sum of the losses, its gradients, and the squares of the Linear layers."""
        inputs, targets, w = chunk
        parameters = self._model.leaves(x)
        seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        hooks = [use.watch(seen) for use in self._linear_uses]
        try:
            z = self._model(parameters, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        total = self._kernels.total_loss(z, targets, w)
        outputs = [seen[use.layer][1] for use in self._linear_uses]
        grads = torch.autograd.grad(total, [*parameters, *outputs], allow_unused=True)
        squares: list[Tensor | None] = [None] * len(parameters)
        for use, delta in zip(self._linear_uses, grads[len(parameters) :], strict=True):
            if delta is not None:
                use.square(seen[use.layer][0], delta, squares)
        return total.detach(), grads[: len(parameters)], squares

    def _by_vmap(self, x: Tensor, chunk: Chunk) -> Squares:
        """The squares of the other parameters, from all samples' gradients at once."""
        pieces = self._model.split(x)

        def loss(some: list[Tensor], one_input: Any, one_target: Any, weight: Tensor) -> Tensor:
            merged = list(pieces)
            for i, piece in zip(self._others, some, strict=True):
                merged[i] = piece
            z = self._model(merged, _batch_of_one(one_input))
            return self._kernels.total_loss(z, _batch_of_one(one_target), weight[None])

        per_sample = torch.func.vmap(
            torch.func.grad(loss), in_dims=(None, 0, 0, 0), randomness="different"
        )
        some = [pieces[i] for i in self._others]
        sums: Squares = [torch.zeros_like(piece) for piece in some]
        for part in self._parts(chunk, self.max_samples or 1):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                grads = per_sample(some, *part)
            for total, g in zip(sums, grads, strict=True):
                total += g.square().sum(0)
        return sums

    def _one_by_one(self, x: Tensor, chunk: Chunk) -> Squares:
        """The same, with one backward pass per sample."""
        sums: Squares = [torch.zeros_like(self._model.split(x)[i]) for i in self._others]
        for inputs, targets, w in self._parts(chunk, SAMPLES_PER_FORWARD):
            parameters = self._model.leaves(x)
            losses = self._kernels.losses(self._model(parameters, inputs), targets, len(w)) * w
            some = [parameters[i] for i in self._others]
            for loss in losses:
                grads = torch.autograd.grad(
                    loss, some, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                for total, g in zip(sums, grads, strict=True):
                    total += g.square()
        return sums

    def _parts(self, chunk: Chunk, size: int) -> list[Chunk]:
        """The chunk in parts; in one where dropout masks are drawn for all of it at once."""
        n = len(chunk[2])
        size = n if self._model.is_random else size
        return [_rows(chunk, slice(at, at + size)) for at in range(0, n, size)]

    def _choose(self, probe: Chunk) -> Callable[[Tensor, Chunk], Squares]:
        """vmap, which is faster, if it gives the same squares."""
        x, shapes = self._model.x0, [self._model.shapes[i] for i in self._others]
        with self._model.restored_randomness():
            right = flatten(self._one_by_one(x, probe), shapes, x)
        try:
            with self._model.restored_randomness():
                difference = (flatten(self._by_vmap(x, probe), shapes, x) - right).norm()
            reason = f"it differs by {float(difference):.1e}"
            agrees = bool(difference <= MAX_VMAP_DIFFERENCE * right.norm())
        except Exception as error:  # whatever a module may raise under vmap
            reason, agrees = str(error), False
        if agrees:
            return self._by_vmap
        log.warning("ksdmin: one backward pass per sample for the diagonal, not vmap: %s", reason)
        return self._one_by_one


def _batch_of_one(sample: Any) -> Any:
    return tuple(map(_batch_of_one, sample)) if isinstance(sample, tuple) else sample[None]


def _rows(data: Any, part: slice) -> Any:
    return tuple(_rows(piece, part) for piece in data) if isinstance(data, tuple) else data[part]
