"""CUDA graphs: operations on a device that are launched all at once.

Nothing here imports torch: whoever has arrays on a CUDA device has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def side_stream(device: Any) -> Any:
    """The stream of all captures: one for all, as libraries keep memory for each stream."""
    return sys.modules["torch"].cuda.Stream(device)


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
        side.wait_stream(here)
        with cuda.stream(side):
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
