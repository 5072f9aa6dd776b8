"""The kernels under CUDA graphs: static buffers of one shape, replayed for every chunk.

Small networks are bound by the launching of their kernels, not by arithmetic; a graph launches all
of them at once. A chunk that is not full is padded, and the padding has weight zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch.kernels import Chunk, Kernel, Kernels, Product

FEW = 256  # samples that a graph is tried with
WARM_UP = 3  # runs before a capture: libraries set themselves up in the first ones
PADDING = 1.25  # how much longer than a set its chunks may be together
SHAPES = 2  # graphs of a kernel that are kept: for the sets of the search, and the whole set
AGREEMENT = 1e-2  # relative difference from eager that different kernels of a library may make


class GraphExecutor:
    """Runs kernels by replaying graphs; each is captured, and compared with eager, on first use.

    A RuntimeError says that this model cannot be captured, or comes out differently.
    """

    reuses_memory = True

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._captured: dict[tuple[str, int, str], Graphed] = {}  # the latest used last
        self._products: dict[tuple[int, int, str], GraphedProduct] = {}

    def rows(self, kind: str, size: int, most: int) -> int:
        """How long to make the chunks of a set: as a graph at hand has them, if that fits.

        It fits if there are few chunks and little padding.
        """
        at_hand = [r for name, r, _ in self._captured if name == kind]
        if kind == "product":
            at_hand = [r for _, r, _ in self._products]
        filled = {r: -(-size // r) * r for r in at_hand if size / 8 <= r <= most}
        fitting = [r for r, total in filled.items() if total <= PADDING * size]
        return min(fitting, key=lambda r: (filled[r], -r), default=min(size, most))

    def run(
        self, kind: str, rows: int, x: Tensor, chunk: Chunk, precision: str
    ) -> tuple[Tensor, ...]:
        """The outputs of a kernel, in buffers that the next run overwrites."""
        kernel = self._kernels.by_name(kind)
        if not getattr(kernel, "capturable", True):
            with self._kernels.model.arithmetic(precision):
                return kernel(x, chunk)
        graphed = self._captured.pop((kind, rows, precision), None)
        if graphed is None:
            self._make_room(kind)
            with self._kernels.model.arithmetic(precision):
                graphed = Graphed(kernel, x, stretched(chunk, rows))
        self._captured[kind, rows, precision] = graphed
        return graphed(x, padded(chunk, rows))

    def _make_room(self, kind: str) -> None:
        """Forget the graphs of sets that have been outgrown."""
        of_this_kind = [key for key in self._captured if key[0] == kind]
        for key in of_this_kind[: 1 - SHAPES]:
            del self._captured[key]

    def product(self, slot: int, rows: int, x: Tensor, chunk: Chunk, precision: str) -> Product:
        """The curvature of a chunk, in a place (`slot`) that the next one there overwrites."""
        key = slot, rows, precision
        if key not in self._products:
            for outgrown in [old for old in self._products if old[1:] != key[1:]]:
                del self._products[outgrown]
            with self._kernels.model.arithmetic(precision):
                full = stretched(chunk, rows)
                self._products[key] = GraphedProduct(self._kernels.product, x, full)
        self._products[key].set_up(x, padded(chunk, rows))
        return self._products[key]


class Graphed:
    """A kernel (x, chunk) -> tensors, captured for one shape: that of `chunk`, which it takes over.

    It is warmed up, and compared with eager, on a few of the samples: eager needs its own memory.
    """

    def __init__(self, kernel: Kernel, x: Tensor, chunk: Chunk) -> None:
        few = first_rows(chunk)
        self._x, self._chunk = x.clone(), chunk
        warm_up(lambda: kernel(x, few))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=side_stream(x.device)):
            self._outputs = kernel(self._x, self._chunk)
        replayed = self(x, padded(few, len(chunk[2])))
        for one, other in zip(replayed, kernel(x, few), strict=True):
            compare(one, other)

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, ...]:
        self._x.copy_(x)
        _fill(self._chunk, chunk)
        self._graph.replay()
        return self._outputs


class GraphedProduct:
    """The curvature of one chunk: a graph for what all products share, and one for a product."""

    def __init__(self, kernel: Callable[[Tensor, Chunk], Product], x: Tensor, chunk: Chunk) -> None:
        few = first_rows(chunk)
        self._x, self._chunk = x.clone(), chunk
        self._v = torch.randn_like(x)
        warm_up(lambda: kernel(x, few)(self._v))
        self._set_up, self._multiply = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        side = side_stream(x.device)
        with torch.cuda.graph(self._set_up, stream=side):
            self._product = kernel(self._x, self._chunk)  # keeps its activations in the graph
        with torch.cuda.graph(self._multiply, pool=self._set_up.pool(), stream=side):
            self._output = self._product(self._v)
        self.set_up(x, padded(few, len(chunk[2])))
        compare(self(self._v.clone()), kernel(x, few)(self._v))

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


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Where graphs are made: one for all, as libraries keep memory for each stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def warm_up(run: Callable[[], Any]) -> None:
    """Run a few times on the side stream, as a capture requires."""
    here = torch.cuda.current_stream()
    side = side_stream(here.device)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    here.wait_stream(side)


def compare(replayed: Tensor, eager: Tensor) -> None:
    """Make sure that a graph computes what eager does."""
    size, difference = float(eager.norm()), float((replayed - eager).norm())
    if math.isfinite(size) and not difference <= AGREEMENT * size:
        raise RuntimeError(
            f"a CUDA graph differs from eager by {difference:.1e}, where the result is {size:.1e}"
        )


def first_rows(chunk: Any) -> Any:
    """A few of the samples."""
    return _map(lambda part: part[:FEW].clone(), chunk)


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
