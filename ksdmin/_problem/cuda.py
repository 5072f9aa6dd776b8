"""CUDA graphs: operations on a device that are launched all at once.

Nothing here imports torch: whoever has arrays on a CUDA device has done so.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import RLock
from typing import Any

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space


@cache
def side_stream(device: Any) -> Any:
    """The stream of all captures: one for all, as libraries keep memory for each stream."""
    return sys.modules["torch"].cuda.Stream(device)


# Held by whoever uses the side stream: what another thread asked of it would be recorded, too.
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


class Graph:
    """Operations on arrays that stay where they are, recorded once and then repeated by a call.

    They run once while they are recorded, since libraries initialise themselves then. What they
    allocate is taken from `pool`, and what they leave there is not kept: graphs with the same pool
    must follow one another.
    """

    def __init__(self, operations: Callable[[], object], device: Any, pool: Any) -> None:
        cuda = sys.modules["torch"].cuda
        here, side = cuda.current_stream(device), side_stream(device)
        self._graph = cuda.CUDAGraph()
        with undisturbed(), cuda.stream(side):
            side.wait_stream(here)
            operations()
            # torch.cuda.graph would collect garbage and empty the cache first, every time
            self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                operations()
            finally:
                self._graph.capture_end()
        here.wait_stream(side)

    def __call__(self) -> None:
        self._graph.replay()


def new_pool() -> Any:
    """For graphs that follow one another."""
    return sys.modules["torch"].cuda.graph_pool_handle()


class Arrival:
    """Numbers on the host that operations on a device leave there.

    `take` is one of these operations: it may be recorded. Ask for the numbers by `expect` once the
    operations are launched, and `wait` for them before they are launched again.
    """

    def __init__(self, space: Space, count: int) -> None:
        torch = sys.modules["torch"]
        self._target = torch.empty(count, dtype=space.dtype, pin_memory=space.remote)
        self._numbers, self._device = self._target.numpy(), space.device
        self._done = torch.cuda.Event() if space.remote else None

    def take(self, numbers: Array) -> None:
        """Copy them, without waiting."""
        self._target.copy_(numbers, non_blocking=True)

    def expect(self) -> None:
        """What was launched by now is what to wait for."""
        if self._done is not None:
            self._done.record(sys.modules["torch"].cuda.current_stream(self._device))

    def wait(self) -> Small:
        """The numbers."""
        if self._done is not None:
            self._done.synchronize()
        return np.array(self._numbers, dtype=np.float64)

    def __del__(self) -> None:
        with suppress(Exception):  # as at the end of the process
            self.wait()  # what is on its way has to arrive somewhere


def cache_bytes(device: Any) -> int:
    """The size of the device's cache; 0 where torch (before 2.5) does not tell."""
    properties = sys.modules["torch"].cuda.get_device_properties(device)
    return int(getattr(properties, "L2_cache_size", 0))


def stack_into(rows: Any, vectors: list[Any]) -> None:
    """Copy torch vectors into the rows of an array, by one operation."""
    sys.modules["torch"].stack(vectors, out=rows)
