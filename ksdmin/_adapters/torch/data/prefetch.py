"""The next chunks are made in a thread while the current one is computed with."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Queue = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]

# Chunks that are made ahead: one is enough where all take the same time, the second one makes up
# for a slow one. Each takes memory.
DEPTH = 2
MAX_WAIT = 5.0  # seconds for a thread to end, when the interpreter does: a task may hang

_at_work: weakref.WeakKeyDictionary[threading.Thread, Queue] = weakref.WeakKeyDictionary()


class Prefetcher:
    """Runs tasks one after the other in a thread of its own.

    The thread starts with the first task; it ends when the prefetcher is dropped.
    """

    def __init__(self) -> None:
        self._tasks: Queue | None = None
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
        # A thread cannot be copied: a copy starts its own
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
        del future, task  # a thread that waits must not keep what they hold
