"""The diagonal of the empirical Fisher matrix: squared gradients, summed over samples.

For a weight that is multiplied by one row of each sample, as in a Linear layer, the sum of all
(a_i b_i^T)^2 is (a^2)^T (b^2). So no gradient of a single sample is needed, and the sums come with
the backward pass of the gradient. All other parameters need the gradient of every sample, by vmap.
Both are exact. But gradients per sample are expensive, so a model with such parameters uses
`DIAGONAL_SAMPLES` samples only. A model that fails under vmap has no diagonal: one backward pass
per sample would take most of a run, and gain a few percent.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.probing import Probing, alike
from ksdmin._adapters.torch.weight_uses import Use, Uses, pull_back, uses_of
from ksdmin._adapters.trees import tree_map

log = logging.getLogger("ksdmin")


def diagonal_kernel(probing: Probing, budget: float) -> Diagonal | None:
    """The kernel for a model, checked with a few samples; None if there is no affordable one."""
    kernels, reason = probing.kernels, None
    known = _multiplied_once(probing)
    for rows in (known, set()) if known else (known,):
        kernel = Diagonal(kernels, rows, budget)
        reason = kernel.fault(probing)
        if reason is None:
            return kernel
    log.info(
        "no diagonal preconditioner: torch.func.vmap cannot take the gradients of single samples "
        "of %s (%s)",
        type(kernels.model.model).__name__,
        reason,
    )
    return None


def _multiplied_once(probing: Probing) -> set[int]:
    """The weights, and biases, that are used once, with one row of each sample."""
    model, parameters = probing.kernels.model, probing.forward.parameters
    uses, found = _uses(model, probing.total, parameters), set()
    matrices = [
        use
        for use in uses.by_node.values()
        if use.weight is None or (len(model.shapes[use.weight]) == 2 and not use.looks_up)
    ]

    def take(use: Use, a: Tensor, b: Tensor) -> None:
        rows = len(a) == len(probing.chunk[2])
        if rows and use.weight is not None and model.shapes[use.weight] == (a.shape[1], b.shape[1]):
            found.add(use.weight)
        if rows and use.bias is not None and model.sizes[use.bias] == use.of_bias(a, b).shape[1]:
            found.add(use.bias)

    pull_back(model, parameters, probing.total, None, matrices, take, retain_graph=True)
    return {i for i in found if len(uses.of_weight(i) or uses.of_bias(i)) == 1}


def _uses(model: FlatModel, total: Tensor, parameters: list[Tensor]) -> Uses:
    """The uses of the parameters; an activation checkpoint computes what they keep again."""
    if not model.recomputes:
        return uses_of(total, parameters)
    uses: Uses = model.holding(parameters, uses_of, total, parameters)
    return uses


class Diagonal:
    """The kernel that computes gradient and diagonal in one pass."""

    def __init__(
        self,
        kernels: Kernels,
        rows: set[int],  # the parameters that are multiplied by one row of each sample
        budget: float,  # bytes for the gradients of single samples
    ) -> None:
        self._kernels, self._model, self._rows = kernels, kernels.model, rows
        self._others = [i for i in range(len(self._model.sizes)) if i not in rows]
        # How many samples' gradients `budget` holds; None where none are needed.
        self.max_samples: int | None = None
        if self._others:
            size = sum(self._model.sizes[i] for i in self._others)
            self.max_samples = max(1, int(budget // (size * self._model.x0.element_size())))

    def fault(self, probing: Probing) -> str | None:
        """Why this kernel is wrong for the model; None if it is right.

        It is compared with one backward pass per sample. For a model with dropout vmap draws other
        masks: its squares are an equally good estimate, but cannot be compared.
        """
        try:
            with self._model.restored_randomness():
                found = self(probing.x, probing.chunk)[2]
            if self._model.is_random and self._others:
                return None
            with self._model.restored_randomness():
                agrees = alike(self._one_by_one(probing), found)
        except Exception as error:  # whatever a module may raise under vmap
            return str(error).split(". ")[0]
        return None if agrees else "it differs from one backward pass for each"

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the losses, its gradient, and the sum of the squared gradients."""
        squares: list[Tensor | None] = [None] * len(self._model.sizes)
        if self._others:
            with self._model.restored_randomness():  # the same dropout masks are drawn again
                for i, piece in zip(self._others, self._by_vmap(x, chunk), strict=True):
                    squares[i] = piece
        forward = self._kernels.forward(x, chunk)
        total = self._kernels.total_loss(forward.z, forward.targets, forward.w)

        def take(use: Use, a: Tensor, b: Tensor) -> None:
            a2 = a.square()
            if use.weight in self._rows:
                squares[use.weight] = a2.T @ b.to(a2.dtype).square()
            if use.bias in self._rows:
                squares[use.bias] = use.of_bias(a, b).square().sum(0)

        known: list[Use] = []
        if self._rows:
            uses = _uses(self._model, total, forward.parameters).by_node.values()
            known = [use for use in uses if {use.weight, use.bias} & self._rows]
        g = pull_back(self._model, forward.parameters, total, None, known, take)
        flat = self._model.flat
        return total.detach(), flat(g, x), flat(squares, x).to(x.dtype)

    def _by_vmap(self, x: Tensor, chunk: Chunk) -> list[Tensor]:
        """The squares of the other parameters, from all samples' gradients at once."""
        pieces = self._model.split(x)

        def loss(some: list[Tensor], one_input: Any, one_target: Any, weight: Tensor) -> Tensor:
            merged = list(pieces)
            for i, piece in zip(self._others, some, strict=True):
                merged[i] = piece
            inputs, targets = tree_map(itemgetter(None), (one_input, one_target))  # a batch of one
            return self._kernels.total_loss(self._model(merged, inputs), targets, weight[None])

        per_sample = torch.func.vmap(
            torch.func.grad(loss), in_dims=(None, 0, 0, 0), randomness="different"
        )
        some = [pieces[i] for i in self._others]
        sums = [torch.zeros_like(piece) for piece in some]
        n = len(chunk[2])
        # dropout masks are drawn for the whole chunk
        size = n if self._model.is_random else self.max_samples or 1
        for start in range(0, n, size):
            part = tree_map(itemgetter(slice(start, start + size)), chunk)
            # without a graph: parameters that are not varied may require a gradient, too
            with torch.no_grad(), warnings.catch_warnings(), _own_first_states(self._model.model):
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                grads = per_sample(some, *part)
            for total, g in zip(sums, grads, strict=True):
                total += g.square().sum(0)
        return sums

    def _one_by_one(self, probing: Probing) -> Tensor:
        """The squares of all parameters, with one backward pass per sample: for the check."""
        x, parameters = probing.x, probing.forward.parameters
        total = torch.zeros_like(x)
        for loss in self._kernels.single_losses(probing.forward, probing.chunk[0]):
            g = self._model.derivatives(parameters, loss, retain_graph=True)
            total += self._model.flat(g, x).to(x.dtype).square()
        return total


@contextmanager
def _own_first_states(model: nn.Module) -> Iterator[None]:
    """Within it, recurrent layers have a separate first state for each sample.

    By default all samples share torch's zeros, into which vmap cannot write.
    """

    def with_states(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, *given = (*args, *kwargs.values())  # in their order: forward(input, hx)
        if not isinstance(x, Tensor):
            return None
        if not given or given[0] is None:
            return (x, _first_states(layer, x)), {}
        return (x, tree_map(lambda state: state + x.new_zeros(state.shape), given[0])), {}

    layers: list[Any] = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    hooks = [layer.register_forward_pre_hook(with_states, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _first_states(layer: nn.RNNBase, x: Tensor) -> Any:
    batch = [x.shape[0 if layer.batch_first else 1]] if x.ndim == 3 else []
    rows = (2 if layer.bidirectional else 1) * layer.num_layers
    h = x.new_zeros(rows, *batch, layer.proj_size or layer.hidden_size)
    return (h, x.new_zeros(rows, *batch, layer.hidden_size)) if layer.mode == "LSTM" else h
