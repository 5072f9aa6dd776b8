"""Chunks from the host to a CUDA device, copied while the one before is computed with.

A thread gathers rows into pinned memory. All calls of CUDA are made by the caller's own thread:
those of another one would break the capture of a graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ksdmin._adapters.torch.data.prefetch import DEPTH, Prefetcher
from ksdmin._adapters.torch.data.trees import take_rows
from ksdmin._adapters.torch.kernels import Chunk

# Chunks that may be on the device before the one that it computes with is done: that one, and the
# next. Each takes memory.
CHUNKS_ON_DEVICE = 2


class Slot:
    """Pinned memory for one chunk, used again and again.

    Parameters
    ----------
    chunk : tuple
        Inputs, targets and weights of all samples, on the host.
    rows : int
        How many samples it is for.
    dtype : torch.dtype
        Inputs and targets of wider floating-point numbers are brought to it on the host, narrower
        ones on the device: so little is copied.
    """

    def __init__(self, chunk: Chunk, rows: int, dtype: torch.dtype) -> None:
        *pair, w = chunk
        narrowed = tree_map(lambda leaf: _pinned(leaf, rows, dtype), tuple(pair))
        self._chunk, self._buffers = chunk, (*narrowed, _pinned(w, rows, w.dtype))
        self._copied: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Until what is in it has been copied to the device."""
        if self._copied is not None:
            self._copied.synchronize()

    def gather(self, part: Any, count: int) -> Slot:
        """Fill it with the samples `part`, `count` of them."""
        self._filled = tree_map(
            lambda leaf, buffer: _gather(leaf, part, buffer[:count]), self._chunk, self._buffers
        )
        return self

    def copy(self, device: torch.device) -> Chunk:
        """What is in it, on the device as soon as the current stream gets there."""
        chunk: Chunk
        chunk, self._copied = to_device(self._filled, device)
        return chunk


def _pinned(leaf: Any, rows: int, dtype: torch.dtype) -> Tensor:
    like = take_rows(leaf, slice(0, 0))
    narrow = like.is_floating_point() and like.dtype.itemsize > dtype.itemsize
    shape = (rows, *like.shape[1:])
    return torch.empty(shape, dtype=dtype if narrow else like.dtype, pin_memory=True)


def _gather(leaf: Any, part: Any, out: Tensor) -> Tensor:
    if isinstance(leaf, Tensor) and isinstance(part, Tensor) and leaf.dtype == out.dtype:
        return torch.index_select(leaf, 0, part, out=out)
    return out.copy_(leaf[part] if isinstance(leaf, Tensor) else take_rows(leaf, part))


def gathered(
    prefetcher: Prefetcher,
    chunk: Chunk,
    parts: Sequence[Any],
    counts: Sequence[int],
    dtype: torch.dtype,
) -> Iterator[Slot]:
    """The parts of all samples, each in pinned memory, gathered ahead by a thread."""
    # Those that are gathered ahead, the one that is asked for, and the one that is being copied
    slots = [Slot(chunk, max(counts), dtype) for _ in range(min(len(parts), DEPTH + 2))]

    def tasks() -> Iterator[Callable[[], Slot]]:
        for i, (part, count) in enumerate(zip(parts, counts, strict=True)):
            slot = slots[i % len(slots)]
            slot.wait()
            yield partial(slot.gather, part, count)

    return prefetcher.ahead(tasks())


def uploaded(copies: Iterable[Callable[[], Chunk]], device: torch.device) -> Iterator[Chunk]:
    """The chunks on the device, one by one.

    The copy of a chunk begins when it is asked for: then the device still computes with the one
    before. It waits for the one before that, so that no more than `CHUNKS_ON_DEVICE` pile up.
    """
    used: deque[torch.cuda.Event] = deque()
    for copy in copies:
        if len(used) == CHUNKS_ON_DEVICE:
            used.popleft().synchronize()
        yield copy()
        used.append(torch.cuda.current_stream(device).record_event())


def to_device(tree: Any, device: torch.device) -> tuple[Any, torch.cuda.Event]:
    """Pinned tensors on the device, copied on a stream of its own; the current one waits for it."""
    here, stream = torch.cuda.current_stream(device), _copy_stream(device)
    with torch.cuda.stream(stream):
        copies = tree_map(lambda leaf: leaf.to(device, non_blocking=True), tree)
        copied = stream.record_event()
    here.wait_event(copied)
    for leaf in tree_leaves(copies):
        leaf.record_stream(here)  # so that its memory is not used again before `here` is done
    return copies, copied


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
