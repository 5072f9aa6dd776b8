"""The kernels under CUDA graphs: static buffers of one shape, replayed for every chunk.

Small networks are bound by the launching of their kernels, not by arithmetic; a graph launches all
of them at once. A chunk that is not full is padded, and the padding has weight zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch_kernels import Chunk, Kernel, Kernels, Product

WARM_UP = 3  # runs before a capture: libraries set themselves up in the first ones
PADDING = 1.25  # how much longer than a set its chunks may be together
AGREEMENT = 1e-2  # relative difference from eager that different kernels of a library may make


class GraphExecutor:
    """Runs kernels by replaying graphs; each is captured, and compared with eager, on first use.

    A RuntimeError says that this model cannot be captured, or comes out differently.
    """

    reuses_memory = True

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._captured: dict[tuple[str, int], Graphed] = {}
        self._products: dict[tuple[int, int], GraphedProduct] = {}

    def rows(self, kind: str, size: int, most: int) -> int:
        """How long to make the chunks of a set: as a graph at hand has them, if that fits.

        It fits if there are few chunks and little padding.
        """
        at_hand = [r for name, r in [*self._captured, *self._product_shapes()] if name == kind]
        filled = {r: -(-size // r) * r for r in at_hand if size / 8 <= r <= most}
        fitting = [r for r, total in filled.items() if total <= PADDING * size]
        return min(fitting, key=lambda r: (filled[r], -r), default=min(size, most))

    def run(self, kind: str, rows: int, x: Tensor, chunk: Chunk) -> tuple[Tensor, ...]:
        """The outputs of a kernel, in buffers that the next run overwrites."""
        if (kind, rows) not in self._captured:
            with self._kernels.model.arithmetic():
                full = stretched(chunk, rows)
                self._captured[kind, rows] = Graphed(self._kernels.by_name(kind), x, full)
        return self._captured[kind, rows](x, padded(chunk, rows))

    def product(self, slot: int, rows: int, x: Tensor, chunk: Chunk) -> Product:
        """The curvature of a chunk, in a place (`slot`) that the next one there overwrites."""
        if (slot, rows) not in self._products:
            with self._kernels.model.arithmetic():
                full = stretched(chunk, rows)
                self._products[slot, rows] = GraphedProduct(self._kernels.product, x, full)
        self._products[slot, rows].set_up(x, padded(chunk, rows))
        return self._products[slot, rows]

    def _product_shapes(self) -> list[tuple[str, int]]:
        return [("product", rows) for _, rows in self._products]


class Graphed:
    """A kernel (x, chunk) -> tensors, captured for one shape."""

    def __init__(self, kernel: Kernel, x: Tensor, chunk: Chunk) -> None:
        self._x, self._chunk = x.clone(), _map(torch.clone, chunk)
        warm_up(lambda: kernel(self._x, self._chunk))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = kernel(self._x, self._chunk)
        self._graph.replay()
        for replayed, eager in zip(self._outputs, kernel(x, chunk), strict=True):
            compare(replayed, eager)

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, ...]:
        self._x.copy_(x)
        _fill(self._chunk, chunk)
        self._graph.replay()
        return self._outputs


class GraphedProduct:
    """The curvature of one chunk: a graph for what all products share, and one for a product."""

    def __init__(self, kernel: Callable[[Tensor, Chunk], Product], x: Tensor, chunk: Chunk) -> None:
        self._x, self._chunk = x.clone(), _map(torch.clone, chunk)
        self._v = torch.randn_like(x)
        warm_up(lambda: kernel(self._x, self._chunk)(self._v))
        self._set_up, self._multiply = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._set_up):
            self._product = kernel(self._x, self._chunk)  # keeps its activations in the graph
        with torch.cuda.graph(self._multiply, pool=self._set_up.pool()):
            self._output = self._product(self._v)
        self._set_up.replay()
        self._multiply.replay()
        compare(self._output, kernel(x, chunk)(self._v))

    def set_up(self, x: Tensor, chunk: Chunk) -> None:
        """Compute what the products at x share."""
        self._x.copy_(x)
        _fill(self._chunk, chunk)
        self._set_up.replay()

    def __call__(self, v: Tensor) -> Tensor:
        """The product, in the graph's own buffer."""
        self._v.copy_(v)
        self._multiply.replay()
        return self._output


def warm_up(run: Callable[[], Any]) -> None:
    """Run a few times on a side stream, as a capture requires."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)


def compare(replayed: Tensor, eager: Tensor) -> None:
    """Make sure that a graph computes what eager does."""
    size, difference = float(eager.norm()), float((replayed - eager).norm())
    if math.isfinite(size) and not difference <= AGREEMENT * size:
        raise RuntimeError(f"a CUDA graph differs from eager by {difference:.1e}")


def padded(chunk: Chunk, rows: int) -> Chunk:
    """The chunk with weights for all rows: what lies beyond its samples counts zero."""
    inputs, targets, w = chunk
    return inputs, targets, torch.nn.functional.pad(w, (0, rows - len(w)))


def stretched(chunk: Chunk, rows: int) -> Chunk:
    """The chunk with all rows, its samples repeated as padding, for a capture."""
    inputs, targets, w = padded(chunk, rows)
    again = torch.arange(rows, device=w.device) % len(chunk[2])
    return _map(lambda part: part[again], inputs), _map(lambda part: part[again], targets), w


def _fill(buffers: Any, values: Any) -> None:
    """Copy into static buffers; what a short chunk does not fill repeats its first row.

    An older sample left there could be infinite by now, and zero times that is NaN.
    """
    if isinstance(buffers, tuple):
        for buffer, value in zip(buffers, values, strict=True):
            _fill(buffer, value)
    else:
        buffers[: len(values)].copy_(values)
        if len(values) < len(buffers):
            buffers[len(values) :].copy_(values[:1].expand_as(buffers[len(values) :]))


def _map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    if isinstance(tree, tuple):
        return tuple(_map(function, leaf) for leaf in tree)
    return function(tree)
