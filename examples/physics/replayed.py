"""A function of tensors as a CUDA graph: its kernels are launched all at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

log = logging.getLogger(__name__)

WARM_UP_RUNS = 3  # libraries choose their kernels in the first ones


def replayed(function: Callable[..., Any], like: Tensor) -> Callable[..., Any]:
    """On CUDA a graph of `function` for every shape of its arguments; elsewhere itself.

    The results are overwritten by the next call. A function that cannot be captured is called.
    """
    return Replayed(function) if like.device.type == "cuda" else function


class Replayed:
    """The graphs of a function, each captured when arguments of its shapes first come."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._graphs: dict[tuple[Any, ...], Graph] = {}
        self._eager = False

    def __call__(self, *arguments: Any) -> Any:
        if self._eager:
            return self._function(*arguments)
        shapes = tuple(leaf.shape for leaf in tree_leaves(arguments))
        if shapes not in self._graphs:
            try:
                self._graphs[shapes] = Graph(self._function, arguments)
            except RuntimeError as error:
                log.warning("no CUDA graph of %s: %s", self._function, error)
                self._eager = True
                return self._function(*arguments)
        return self._graphs[shapes](arguments)


class Graph:
    """One graph, with buffers for arguments of one shape."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._buffers = tree_map(torch.clone, arguments)
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                function(*self._buffers)
        here.wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = function(*self._buffers)

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        tree_map(lambda buffer, value: buffer.copy_(value), self._buffers, arguments)
        self._graph.replay()
        return self._results
