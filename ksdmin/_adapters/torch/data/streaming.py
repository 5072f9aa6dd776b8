"""Chunks that are read, and copied to a CUDA device, during the computation with the last one.

A thread gathers rows into pinned memory. All CUDA calls are made in the caller's thread: those of
another thread would break the capture of a graph.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

from ksdmin._adapters.torch.data.arrays import take_rows
from ksdmin._adapters.torch.kernels import Chunk
from ksdmin._adapters.trees import tree_leaves, tree_map

T = TypeVar("T")
Queue = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]

# Chunks that are prepared ahead: one is enough if all take the same time, a second one makes up for
# a slow one. Each takes memory.
DEPTH = 2
MAX_WAIT = 5.0  # seconds for a thread to end, when the interpreter ends: a task may hang

_at_work: weakref.WeakKeyDictionary[threading.Thread, Queue] = weakref.WeakKeyDictionary()


class Prefetcher:
    """Runs tasks one after the other in a thread of its own.

    The thread starts with the first task; it ends when the prefetcher is dropped.
    """

    def __init__(self) -> None:
        self._tasks: Queue | None = None
        self._process = 0

    def ahead(self, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
        """The results of the tasks in order; an exception is raised in place of its result.

        `tasks` itself is iterated in the caller's thread.
        """
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(self._submit(task))
                if len(waiting) > DEPTH:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:  # the caller has stopped iterating
                future.cancel()

    def _submit(self, task: Callable[[], T]) -> Future[T]:
        if self._tasks is None or self._process != os.getpid():  # a fork has no threads
            # No ThreadPoolExecutor: processes that its threads fork, such as the workers of a
            # DataLoader, wait for these threads at their end, and fail.
            self._tasks, self._process = SimpleQueue(), os.getpid()
            thread = threading.Thread(
                target=_work, args=(self._tasks,), name="ksdmin-prefetch", daemon=True
            )
            thread.start()
            _at_work[thread] = self._tasks
            weakref.finalize(self, self._tasks.put, None)
        future: Future[T] = Future()
        self._tasks.put((future, task))
        return future

    def __getstate__(self) -> dict[str, Any]:
        # a thread cannot be copied: a copy starts its own
        return {"_tasks": None, "_process": 0}


def _end() -> None:
    """End all threads: one that is in torch when the interpreter ends would abort the process."""
    for thread, tasks in list(_at_work.items()):
        tasks.put(None)
        thread.join(MAX_WAIT)


atexit.register(_end)


def _work(tasks: Queue) -> None:
    """Run tasks until None comes."""
    for future, task in iter(tasks.get, None):
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(task())
        except BaseException as error:
            future.set_exception(error)
        del future, task  # a waiting thread must not keep references


# Chunks on the device at the same time: the present one and the next. Each takes memory.
CHUNKS_ON_DEVICE = 2


class Slot:
    """Pinned memory for one chunk, used again and again."""

    def __init__(
        self,
        chunk: Chunk,  # inputs, targets and weights of all samples, on the host
        rows: int,  # how many samples it is for
        # Inputs and targets of wider floating-point numbers are brought to it on the host, narrower
        # ones on the device: so little is copied.
        dtype: torch.dtype,
    ) -> None:
        *pair, w = chunk
        narrowed = tree_map(lambda leaf: _pinned(leaf, rows, dtype), tuple(pair))
        self._chunk, self._buffers = chunk, (*narrowed, _pinned(w, rows, w.dtype))
        self._copied: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Wait until its content has been copied to the device."""
        if self._copied is not None:
            self._copied.synchronize()

    def gather(self, part: Any, count: int) -> Slot:
        """Fill it with the samples `part`, `count` of them."""
        self._filled = tree_map(
            lambda leaf, buffer: _gather(leaf, part, buffer[:count]), self._chunk, self._buffers
        )
        return self

    def copy(self, device: torch.device) -> Chunk:
        """Copy its content to the device, in stream order."""
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
    # those gathered ahead, the one asked for, and the one being copied
    slots = [Slot(chunk, max(counts), dtype) for _ in range(min(len(parts), DEPTH + 2))]

    def tasks() -> Iterator[Callable[[], Slot]]:
        for i, (part, count) in enumerate(zip(parts, counts, strict=True)):
            slot = slots[i % len(slots)]
            slot.wait()
            yield partial(slot.gather, part, count)

    return prefetcher.ahead(tasks())


def uploaded(copies: Iterable[Callable[[], Chunk]], device: torch.device) -> Iterator[Chunk]:
    """The chunks on the device, one by one.

    The copy of a chunk begins when it is asked for, while the device still computes with the last
    one. It waits for the one before that, so that at most `CHUNKS_ON_DEVICE` are on the device.
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
        leaf.record_stream(here)  # its memory must not be reused before `here` is done
    return copies, copied


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


# Chunks of the sets used last, if not all samples fit into memory


class KeptSets:
    """Keeps the chunks of sets that fit into a budget; those used least recently go first.

    A run evaluates the sets of its search and its products many times each.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget  # bytes
        self._sets: OrderedDict[Hashable, list[Chunk]] = OrderedDict()

    def chunks(
        self, key: Hashable, count: int, make: Callable[[], Iterator[Chunk]]
    ) -> Iterator[Chunk]:
        """The `count` chunks of the set `key`: kept ones, or those that `make` makes."""
        if key in self._sets:
            self._sets.move_to_end(key)
            return iter(self._sets[key])
        return self._kept(key, count, make())

    def clear(self) -> None:
        self._sets.clear()

    def _kept(self, key: Hashable, count: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        kept: list[Chunk] = []
        for i, chunk in enumerate(chunks):
            if i == 0 and count * _bytes(chunk) > self.budget:
                yield chunk
                yield from chunks
                return
            kept.append(chunk)
            yield chunk
        self._sets[key] = kept
        while sum(map(_bytes, self._sets.values())) > self.budget and len(self._sets) > 1:
            self._sets.popitem(last=False)

    def __getstate__(self) -> dict[str, Any]:
        # Copies of data that the problem holds anyway
        return {"budget": self.budget, "_sets": OrderedDict()}


def _bytes(tree: Any) -> int:
    leaves: list[Tensor] = tree_leaves(tree)
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves)
