"""The next chunks are made in a thread while the current one is computed with."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# Chunks that are made ahead: one is enough where all take the same time, the second one makes up
# for a slow one. Each takes memory.
DEPTH = 2


class Prefetcher:
    """Runs tasks one after the other in a thread of its own.

    The thread starts with the first task; it ends when the prefetcher is dropped.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._process = 0

    def ahead(self, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
        """What the tasks return, in their order; an exception is raised where its result would be.

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
            for future in waiting:  # the caller has stopped asking
                future.cancel()

    def _submit(self, task: Callable[[], T]) -> Future[T]:
        if self._thread is None or self._process != os.getpid():  # a fork has no threads
            self._thread = ThreadPoolExecutor(1, "ksdmin-prefetch")
            self._process = os.getpid()
        return self._thread.submit(task)

    def __getstate__(self) -> dict[str, Any]:
        # A thread cannot be copied: a copy starts its own
        return {"_thread": None, "_process": 0}
