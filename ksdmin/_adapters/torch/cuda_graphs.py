"""The kernels under CUDA graphs: static buffers of one shape, replayed for every chunk.

Small nets are limited by the launches of their kernels, not by arithmetic; a graph launches all at
once. A chunk that is not full is padded with weight zero.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch.kernels import Chunk, Kernel, Kernels, Product
from ksdmin._adapters.trees import tree_map
from ksdmin._libraries.torch import SIDE, cache_bytes, recording, side_stream

# A graph is compared with eager execution on so many samples: few, because that takes memory.
GRAPH_CHECK_SAMPLES = 256
# An existing graph is used for a set of another size if that makes at most four chunks, with at
# most a quarter of padding: a capture takes as long as many replays, but padding, and replays of
# few samples, cost time every time. An iteration of a net of 10,000 parameters takes 30 ms with at
# most eight chunks, 15 with four, 18 with two, because there are more captures. Chunks that fill
# the GPU's cache several times may be any number: then the GPU works at its full rate.
MAX_PADDED_RATIO = 1.25
MAX_CHUNKS_PER_SET = 4
CACHES_AT_FULL_RATE = 4
# Graphs kept for each kernel: for the sets of the search, and for the whole set.
GRAPHS_PER_KERNEL = 2
# Relative difference from eager execution: for another shape a library may choose other kernels,
# and with TF32 or bfloat16 these differ by that much. If terms cancel, as in a gradient close to a
# minimum, they differ by more: by so many times the effect of rounding the parameters (up to 1.8
# times in three nets, in TF32, bfloat16 and float32).
MAX_GRAPH_DIFFERENCE = 1e-2
MAX_ROUNDINGS = 4
TF32_ROUNDING = 2.0**-11  # it has a mantissa of 10 bits


class GraphExecutor:
    """Runs kernels by replaying graphs; each is captured, and compared with eager, on first use.

    A RuntimeError says that this model cannot be captured, or that its graph computes something
    else.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        cache = CACHES_AT_FULL_RATE * cache_bytes(kernels.model.device)
        self._full_rate = cache / kernels.bytes_per_sample if cache else math.inf  # samples
        # a batch shares statistics: its graph is compared on all of its samples
        self._most = None if kernels.model.batch_norms else GRAPH_CHECK_SAMPLES
        self._captured: dict[tuple[Any, ...], Graphed] = {}  # least recently used first
        self._products: dict[tuple[int, int, str], GraphedProduct] = {}

    def chunk_rows(self, kind: str, size: int, max_rows: int) -> int:
        """How many rows the chunks of a set have: those of an existing graph, if that suits.

        It suits if there are few chunks and little padding.
        """
        at_hand = [rows for name, rows, _ in self._captured if name == kind]
        if kind == "product":  # each chunk has a graph of its own
            graphs = Counter(rows for _, rows, _ in self._products)
            at_hand = [rows for rows, count in graphs.items() if count * rows >= size]
        least = min(size / MAX_CHUNKS_PER_SET, self._full_rate)
        candidates = [r for r in at_hand if least <= r <= max_rows]
        padded_size = {r: -(-size // r) * r for r in candidates}
        fitting = [r for r in padded_size if padded_size[r] <= MAX_PADDED_RATIO * size]
        return min(fitting, key=lambda r: (padded_size[r], -r), default=min(size, max_rows))

    def run(
        self, kind: str, rows: int, precision: str, x: Tensor, chunk: Chunk
    ) -> tuple[Tensor, ...]:
        """The outputs of a kernel, in buffers that the next run overwrites."""
        kernel: Kernel = getattr(self._kernels, kind)
        graphed = self._captured.pop((kind, rows, precision), None)
        if graphed is None:
            drop_oldest(self._captured, kind)
            # factors have no weight for padding: they are compared on all samples
            most = None if kind == "factors" else self._most
            with self._kernels.model.arithmetic(precision):
                graphed = Graphed(kernel, x, *buffers_and_probe(chunk, rows, most))
        self._captured[kind, rows, precision] = graphed
        return graphed(x, with_padded_weights(chunk, rows))

    def product(self, slot: int, rows: int, x: Tensor, chunk: Chunk, precision: str) -> Product:
        """The curvature of a chunk, in the buffers `slot`, which the next use overwrites."""
        key = slot, rows, precision
        if key not in self._products:
            for other in [old for old in self._products if old[1:] != key[1:]]:
                del self._products[other]
            with self._kernels.model.arithmetic(precision):
                samples = buffers_and_probe(chunk, rows, self._most)
                self._products[key] = GraphedProduct(self._kernels.product, x, *samples)
        self._products[key].set_up(x, with_padded_weights(chunk, rows))
        return self._products[key]

    def __getstate__(self) -> dict[str, Any]:
        # a graph belongs to its process: a copy captures its own
        return {**self.__dict__, "_captured": {}, "_products": {}}


class Graphed:
    """A kernel (x, values) -> tensors, captured with `buffers`, which have the values' shapes."""

    def __init__(
        self,
        kernel: Kernel,  # of x, and the tree of values that it reads beside it
        x: Tensor,  # a point
        buffers: Any,  # tree of tensors: what the graph reads; each run fills them
        # tree of tensors: values that it is warmed up with, and compared with eager on; and those
        # that fill the buffers with them.
        probe: Any,
        filled: Any,
    ) -> None:
        self._x, self._buffers = x.clone(), buffers

        def rounded(i: int) -> Callable[[], Tensor]:
            return lambda: kernel(nearby(x), probe)[i]

        found = warm_up(lambda: kernel(x, probe), x.device)
        self._graph = torch.cuda.CUDAGraph()
        with captured(self._graph, x.device):
            self._outputs = kernel(self._x, self._buffers)
        for i, (replayed, eager) in enumerate(zip(self(x, filled), found, strict=True)):
            whole = replayed.shape == eager.shape
            replayed = replayed if whole else replayed[: len(eager)]  # a row per sample
            compare(replayed, eager, rounded(i))

    def __call__(self, x: Tensor, values: Any) -> tuple[Tensor, ...]:
        self._x.copy_(x)
        fill(self._buffers, values)
        self._graph.replay()
        return self._outputs


class GraphedProduct:
    """A curvature, likewise: a graph for what all products share, and one for a product."""

    def __init__(
        self, kernel: Callable[[Tensor, Any], Product], x: Tensor, buffers: Any, *samples: Any
    ) -> None:
        probe, filled = samples
        self.owner: object = None  # for whoever shares it: whose point it is set up at
        self._x, self._buffers = x.clone(), buffers
        self._v = torch.randn_like(x)
        eager = warm_up(lambda: kernel(x, probe)(self._v), x.device)
        self._set_up, self._multiply = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with captured(self._set_up, x.device):
            self._product = kernel(self._x, self._buffers)  # keeps its activations in the graph
        with captured(self._multiply, x.device, pool=self._set_up.pool()):
            self._output = self._product(self._v)
        self.set_up(x, filled)
        v = self._v.clone()
        compare(self(v), eager, lambda: kernel(nearby(x), probe)(v))

    def set_up(self, x: Tensor, values: Any) -> None:
        """Compute what the products at x share."""
        self._x.copy_(x)
        fill(self._buffers, values)
        self._set_up.replay()

    def __call__(self, v: Tensor) -> Tensor:
        """The product, in the graph's own buffer."""
        self._v.copy_(v)
        self._multiply.replay()
        return self._output


def drop_oldest(graphs: dict[tuple[Any, ...], Any], kind: str) -> None:
    """Drop the graphs of a kernel that were used least recently, so that one more may be kept."""
    of_this_kind = [key for key in graphs if key[0] == kind]
    for key in of_this_kind[: 1 - GRAPHS_PER_KERNEL]:
        del graphs[key]


@contextmanager
def captured(graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any = None) -> Iterator[None]:
    """Capture what runs within as the graph.

    A failed capture leaves torch's generator in capture mode, so that the next random draw raises:
    then the generator is replaced by a copy.
    """
    try:
        with recording(graph, device, pool):
            yield
    except BaseException:
        generator = torch.cuda.default_generators[device.index]
        generator.graphsafe_set_state(generator.clone_state())
        raise


def warm_up(run: Callable[[], Any], device: torch.device) -> Any:
    """Run twice on the side stream, as a capture requires; returns the result of the second run.

    In the first run libraries initialise themselves and choose kernels. Raises a RuntimeError if
    the second waits for the device: a capture would fail, and leave libraries such as cuSOLVER
    unusable.
    """
    here, side = torch.cuda.current_stream(device), side_stream(device)
    with SIDE, torch.cuda.stream(side):
        side.wait_stream(here)
        run()
        with _no_waiting():
            found = run()
    here.wait_stream(side)
    return found


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Within it, operations that wait for the device raise a RuntimeError, if torch knows them."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it does not know all of them
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def compare(replayed: Tensor, eager: Tensor, rounded: Callable[[], Tensor]) -> None:
    """Raise if a graph does not compute the same as eager execution.

    `rounded` computes it at the point `nearby`.
    """
    size, difference = float(eager.norm()), float((replayed - eager).norm())
    if not math.isfinite(size) or difference <= MAX_GRAPH_DIFFERENCE * size:
        return
    rounding = float((rounded() - eager).norm())
    if math.isfinite(rounding) and difference <= MAX_ROUNDINGS * rounding:
        return
    raise RuntimeError(
        f"a CUDA graph differs from eager by {difference:.1e}, where the result is {size:.1e}"
    )


def nearby(x: Tensor) -> Tensor:
    """A point that differs from x by the rounding of the present arithmetic."""
    unit = torch.finfo(x.dtype).eps / 2
    if torch.is_autocast_enabled(x.device.type):
        unit = torch.finfo(torch.get_autocast_dtype(x.device.type)).eps / 2
    elif x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        unit = TF32_ROUNDING
    same = torch.Generator(x.device).manual_seed(0)  # always
    return x + unit * x * torch.randn(x.shape, generator=same, dtype=x.dtype, device=x.device)


def buffers_and_probe(
    chunk: Chunk, rows: int, most: int | None = GRAPH_CHECK_SAMPLES
) -> tuple[Chunk, Chunk, Chunk]:
    """Buffers for a chunk; a few samples (eager needs memory of its own); and these, padded."""
    inputs, targets, w = with_padded_weights(chunk, rows)
    index = torch.arange(rows, device=w.device) % len(chunk[2])  # samples repeated as padding
    inputs, targets = tree_map(lambda part: part[index], (inputs, targets))
    buffers = inputs, targets, w.clone()  # the graph's own, not the samples'
    probe = tree_map(lambda part: part[:most].clone(), buffers)
    return buffers, probe, with_padded_weights(probe, rows)


def with_padded_weights(chunk: Chunk, rows: int) -> Chunk:
    """The chunk with weights for all rows: zero for those beyond its samples."""
    inputs, targets, w = chunk
    if len(w) == rows:
        return chunk
    return inputs, targets, torch.nn.functional.pad(w, (0, rows - len(w)))


def fill(buffers: Any, values: Any) -> None:
    """Copy into static buffers; the rows that a short chunk does not fill repeat its first row.

    The loss of an old sample left there could be infinite at this x, and zero times that is NaN.
    """
    for buffer, value in zip(buffers, values, strict=True):
        tree_map(_fill_one, buffer, value)


def _fill_one(buffer: Any, value: Any) -> None:
    if not isinstance(buffer, Tensor):  # the slice of the whole set
        return
    if value.shape[1:] != buffer.shape[1:]:  # one that is smaller would be broadcast
        raise RuntimeError(
            f"samples of shape {tuple(value.shape[1:])}, after some of {tuple(buffer.shape[1:])}"
        )
    buffer[: len(value)].copy_(value)
    if len(value) < len(buffer):
        buffer[len(value) :].copy_(value[:1].expand_as(buffer[len(value) :]))
