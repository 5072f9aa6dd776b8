"""Tensors of torch on a CUDA device: operations launched as a whole, and transfers to the host."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

cuda: Any = torch.cuda  # its streams and events have no types


@cache
def side_stream(device: Any) -> Any:
    """The stream of all captures; there is one, because libraries keep memory for each stream."""
    return cuda.Stream(device)


# A lock on the side stream: work of another thread would be recorded, too.
SIDE = RLock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """No other thread records, and no garbage is collected.

    A graph that is freed while another one is recorded makes that one fail.
    """
    with SIDE:
        enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()


@contextmanager
def recording(graph: Any, device: Any, pool: Any = None) -> Iterator[None]:
    """What runs within becomes the graph.

    Unlike ``torch.cuda.graph``, this does not collect garbage first, which takes longer than most
    captures, and empties torch's cache only if memory is short, because graphs cannot use it.
    """
    here, side = cuda.current_stream(device), side_stream(device)
    held = cuda.memory_reserved(device) - cuda.memory_allocated(device)
    if 4 * held > cuda.mem_get_info(device)[0]:
        cuda.empty_cache()
    with undisturbed(), cuda.stream(side):
        side.wait_stream(here)
        options = {} if pool is None else {"pool": pool}
        graph.capture_begin(**options, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()
    here.wait_stream(side)


class Graph:
    """Operations on fixed arrays, recorded once and repeated by a call.

    They run once before they are recorded, because libraries initialise themselves then. They
    allocate from `pool`, and another graph with the same pool may overwrite what they left there.
    """

    def __init__(self, operations: Callable[[], object], device: Any, pool: Any) -> None:
        here, side = cuda.current_stream(device), side_stream(device)
        self._graph = cuda.CUDAGraph()
        with SIDE, cuda.stream(side):
            side.wait_stream(here)
            operations()
        with recording(self._graph, device, pool):
            operations()

    def __call__(self) -> None:
        self._graph.replay()


class Recorded:
    """A function of arrays that is recorded in its second call, with arrays of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._graph: Graph | None = None
        self._inputs: list[Any] = []
        self._output: Any = None
        self._called = False

    def __call__(self, *arrays: Any) -> Any:
        """What the function returns."""
        if not self._called:  # recording would not pay in a run of one or two iterations
            self._called = True
            return self._function(*arrays)
        if self._graph is None:
            self._inputs = [u.detach().clone() for u in arrays]
            self._graph = Graph(self._operations, arrays[0].device, new_pool())
        for own, given in zip(self._inputs, arrays, strict=True):
            own.copy_(given)
        self._graph()
        return self._output.clone()

    def _operations(self) -> None:
        found = self._function(*self._inputs)
        if self._output is None:
            self._output = torch.empty_like(found)
        self._output.copy_(found)


def is_recording() -> bool:
    """Whether what runs now becomes part of a graph."""
    return bool(cuda.is_current_stream_capturing())


def new_pool() -> Any:
    """A memory pool for graphs that follow one another."""
    return cuda.graph_pool_handle()


class Arrival:
    """Numbers that operations on a device copy to the host.

    `take` is one of these operations and may be recorded. Call `expect` after the operations are
    launched, and `wait` before they are launched again.
    """

    def __init__(self, dtype: Any, device: Any, count: int) -> None:
        remote = device.type == "cuda"
        self._target = torch.empty(count, dtype=dtype, pin_memory=remote)
        self._numbers, self._device = self._target.numpy(), device
        self._done = cuda.Event() if remote else None

    def take(self, numbers: Any) -> None:
        """Copy them, without waiting."""
        self._target.copy_(numbers, non_blocking=True)

    def expect(self) -> None:
        """Mark what has been launched as what to wait for."""
        if self._done is not None:
            self._done.record(cuda.current_stream(self._device))

    def wait(self) -> npt.NDArray[np.float64]:
        """The numbers."""
        if self._done is not None:
            self._done.synchronize()
        return np.array(self._numbers, dtype=np.float64)

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the process
            self.wait()  # a transfer under way needs its memory


def transfer(u: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A copy on the host, which a call waits for; later work on the device does not delay it."""
    copy = u.detach().to("cpu", non_blocking=True)  # into pinned memory
    done = cuda.Event()
    done.record(cuda.current_stream(u.device))

    def wait() -> torch.Tensor:
        done.synchronize()
        return copy

    return wait


def zeros(n: int, dtype: str, device: str) -> torch.Tensor:
    """A vector of zeros on that device; on the host where this machine has no such device."""
    try:
        return torch.zeros(n, dtype=getattr(torch, dtype), device=device)
    except (AssertionError, RuntimeError):
        return torch.zeros(n, dtype=getattr(torch, dtype))


def cache_bytes(device: Any) -> int:
    """The size of the device's cache; 0 if torch (before 2.5) does not tell."""
    properties = cuda.get_device_properties(device)
    return int(getattr(properties, "L2_cache_size", 0))


def stack_into(rows: Any, vectors: list[Any]) -> None:
    """Copy torch vectors into the rows of an array, by one operation."""
    torch.stack(vectors, out=rows)
