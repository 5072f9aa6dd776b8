"""The matrix products that a model's forward pass makes of its parameters.

The modules need not cooperate. The autograd graph of a forward pass shows every product of a
parameter with something else (in a Linear layer, in attention, in a recurrent cell or in the user's
own code), and every convolution and embedding. If a model differentiates in its inputs, it shows
those of the derivatives, too. A backward pass through that graph gives the gradients at each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ksdmin._adapters.torch.flat_model import FlatModel

# The factors of a convolution are estimated from so many positions: if there are more, samples are
# left out, but at least the second number of samples is kept.
ENOUGH_POSITIONS, FEWEST_SAMPLES = 2**15, 32
# What may stand between a parameter and its use: a transpose, or autocast.
TRANSPOSES = ("TBackward0", "TransposeBackward0", "PermuteBackward0")
PASSES_ON = (*TRANSPOSES, "ToCopyBackward0")


Vectors = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From what comes back to a node, vectors a and b as rows: the sum of all a b^T is the gradient."""


@dataclass(frozen=True)
class Use:
    """A node of the graph that is linear in a weight."""

    node: Any  # the node
    # The positions of the weight among the variables, and of the bias that is added there; one of
    # them may be missing.
    weight: int | None
    bias: int | None
    vectors: Vectors  # the vectors of its gradient
    bias_is_row: bool = False  # whether the bias goes with the columns of the weight
    looks_up: bool = False  # whether it looks up rows of the weight: then a has their numbers

    def of_bias(self, a: Tensor, b: Tensor) -> Tensor:
        """Those of its vectors that are the bias's."""
        return b if self.bias_is_row else a


@dataclass(frozen=True)
class Uses:
    """What the graph of a forward pass shows."""

    by_node: dict[Any, Use]  # the linear uses, by their nodes
    readers: dict[Any, list[Any]]  # the nodes that read what another node computes
    leaves: dict[int, Any]  # the nodes of the parameters, by their positions

    def of_weight(self, weight: int) -> list[Use]:
        """The uses of a weight; none if it is also used in any other way."""
        found = self._of(self.leaves.get(weight))
        return found if all(use.weight == weight for use in found) else []

    def of_bias(self, bias: int) -> list[Use]:
        """The uses of a bias, likewise."""
        found = self._of(self.leaves.get(bias))
        return found if all(use.bias == bias for use in found) else []

    def _of(self, node: Any) -> list[Use]:
        found: list[Use] = []
        for reader in self.readers.get(node, ()):
            if reader in self.by_node:
                found.append(self.by_node[reader])
                continue
            further = self._of(reader) if reader.name() in PASSES_ON else []
            if not further:
                return []
            found += further
        return found


def uses_of(z: Tensor, parameters: list[Tensor]) -> Uses:
    """The linear uses of the parameters in the graph of `z`."""
    position = {id(parameter): i for i, parameter in enumerate(parameters)}
    found = Uses({}, defaultdict(list), {})
    waiting: list[Any] = [z.grad_fn]
    seen: set[Any] = {z.grad_fn}
    while waiting:
        node = waiting.pop()
        make = _KINDS.get(node.name())
        use = None if make is None else make(node, position)
        if use is not None:
            found.by_node[node] = use
        for child, _ in node.next_functions:
            if child is None:
                continue
            found.readers[child].append(node)
            variable = getattr(child, "variable", None)
            if variable is not None and id(variable) in position:
                found.leaves[position[id(variable)]] = child
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return found


def pull_back(
    model: FlatModel,
    parameters: list[Tensor],
    z: Tensor,
    slopes: Tensor | None,
    uses: Iterable[Use],
    take: Callable[[Use, Tensor, Tensor], None],
    *,
    retain_graph: bool = False,
) -> tuple[Any, ...]:
    """A backward pass from z, in which `take` gets the vectors of every use; returns gradients."""

    @torch.no_grad()
    def reached(use: Use, grads: tuple[Tensor | None, ...]) -> None:
        if grads[0] is not None:
            take(use, *use.vectors(grads[0].detach()))

    hooks = [use.node.register_prehook(partial(reached, use)) for use in uses]
    try:
        return model.derivatives(parameters, z, slopes, retain_graph=retain_graph)
    finally:
        for hook in hooks:
            hook.remove()


def _parameter(edge: Any, position: dict[int, int]) -> tuple[int | None, bool]:
    """The parameter that an edge leads to, and whether it is transposed on the way."""
    node, transposed = edge[0], False
    while node is not None:
        variable = getattr(node, "variable", None)
        if variable is not None:
            return position.get(id(variable)), transposed
        if node.name() not in PASSES_ON:
            break
        transposed ^= node.name() in TRANSPOSES
        node = node.next_functions[0][0]
    return None, False


def _of_product(node: Any, position: dict[int, int]) -> Use | None:
    """L R, where R or L is a parameter or its transpose; or a bias added to that."""
    *added, left_edge, right_edge = node.next_functions
    bias, first = _parameter(added[0], position)[0] if added else None, "mat1" if added else "self"
    weight, transposed = _parameter(right_edge, position)
    if weight is not None:
        left = getattr(node, f"_saved_{first}")

        def right_vectors(g: Tensor) -> tuple[Tensor, Tensor]:
            return (g, left) if transposed else (left, g)

        return Use(node, weight, bias, right_vectors, bias_is_row=not transposed)
    weight, transposed = _parameter(left_edge, position)
    if weight is None:
        return None
    right = node._saved_mat2

    def left_vectors(g: Tensor) -> tuple[Tensor, Tensor]:
        return (right.T, g.T) if transposed else (g.T, right.T)

    return Use(node, weight, None, left_vectors)


def _of_convolution(node: Any, position: dict[int, int]) -> Use | None:
    (weight, _), (bias, _) = (_parameter(edge, position) for edge in node.next_functions[1:])
    if weight is None or node._saved_groups != 1:
        return None
    x, kernel, transposed = node._saved_input, node._saved_weight.shape[2:], node._saved_transposed
    settings = node._saved_stride, node._saved_padding, node._saved_dilation

    def vectors(g: Tensor) -> tuple[Tensor, Tensor]:
        positions = x if transposed else g
        samples, each = len(positions), math.prod(positions.shape[2:])
        # the stride of the samples that count, if there are more positions than needed
        step = max(1, min(samples * each // ENOUGH_POSITIONS, samples // FEWEST_SAMPLES))
        seen, back = x[::step], g[::step] * step**0.5
        if transposed:
            return _positions(seen), patches(back, kernel, *settings)
        return _positions(back), patches(seen, kernel, *settings)

    return Use(node, weight, None if transposed else bias, vectors)


def _of_embedding(node: Any, position: dict[int, int]) -> Use | None:
    weight, _ = _parameter(node.next_functions[0], position)
    if weight is None:
        return None
    indices = node._saved_indices.reshape(-1)
    return Use(node, weight, None, lambda g: (indices, g.reshape(-1, g.shape[-1])), looks_up=True)


def _of_sum(node: Any, position: dict[int, int]) -> Use | None:
    """L + R, where R or L is a bias that is added to each row of the other."""
    edges = node.next_functions
    found = [_parameter(edge, position)[0] for edge in edges]
    biases = [i for i in found if i is not None]
    if len(edges) != 2 or len(biases) != 1:
        return None

    def rows(g: Tensor) -> tuple[Tensor, Tensor]:
        flat = g.reshape(-1, g.shape[-1])
        return flat, flat

    return Use(node, None, biases[0], rows, bias_is_row=True)


_KINDS: dict[str, Callable[[Any, dict[int, int]], Use | None]] = {
    "AddBackward0": _of_sum,
    "AddmmBackward0": _of_product,
    "MmBackward0": _of_product,
    "ConvolutionBackward0": _of_convolution,
    "EmbeddingBackward0": _of_embedding,
}


def _positions(x: Tensor) -> Tensor:
    """The channels of each position of each sample, as rows."""
    return x.flatten(2).transpose(1, 2).reshape(-1, x.shape[1])


def patches(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """The patches of a convolution: what its kernel sees at each position, as rows."""
    x = pad(x, [size for side in reversed(list(padding)) for size in (side, side)])
    for axis, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True), start=2):
        x = x.unfold(axis, (k - 1) * d + 1, s)[..., ::d]
    dims = len(kernel)
    order = (0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims))
    return x.permute(order).reshape(-1, x.shape[1] * math.prod(kernel))
