"""Which runs, in which order, in how many processes.

A job is a variant on a block of tasks of one collection, in a process of its own. The first block
of every collection comes first, for all variants, then the second ones: whenever the time is over,
the variants have been run on the same tasks, or nearly so, and the next call goes on from there.
"""

from __future__ import annotations

import importlib
import math
import multiprocessing
import multiprocessing.connection
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from examples.benchmarks.rule_variants import rewritten, tasks
from examples.benchmarks.rule_variants.tasks import ENDS, LOSSES, MANY, NETS, ROUNDED, S2MPJ, Task
from examples.benchmarks.rule_variants.variants import BASELINES, Variant
from examples.harness.recorder import Spent
from examples.harness.store import Run, Store

IDENTITY = ("collection", "rule", "constant", "value", "block")
BLOCK = {S2MPJ: 12, ENDS: 35, LOSSES: 12, MANY: 3, NETS: 1, ROUNDED: 3}  # tasks
LONGEST = 120.0  # seconds of one run: then it counts as not solved
EVERY = 2.0  # seconds between two writings of the file


@dataclass(frozen=True)
class Job:
    """A variant on a block of tasks."""

    variant: Variant
    block: int
    tasks: tuple[Task, ...]

    @property
    def identity(self) -> dict:
        named = {name: getattr(self.variant, name) for name in ("rule", "constant", "value")}
        return {"collection": self.tasks[0].collection, **named, "block": self.block}


def blocks(members: Sequence[Task]) -> list[tuple[Task, ...]]:
    size = BLOCK[members[0].collection]
    return [tuple(members[i : i + size]) for i in range(0, len(members), size)]


def jobs(variants: Sequence[Variant], chosen: Iterable[Sequence[Task]]) -> Iterator[Job]:
    """All of them, block by block."""
    collections = [blocks(members) for members in chosen if members]
    for number in range(max(map(len, collections), default=0)):
        for variant in variants:
            for of_collection in (found for found in collections if number < len(found)):
                job = Job(variant, number, of_collection[number])
                if tasks.applies(variant.rule, job.tasks[0].collection):
                    yield job


def stop(signum: int, frame: FrameType | None) -> None:
    raise Spent


def perform(job: Job) -> Run:
    """In a process of its own: ksdmin is imported again where it is changed."""
    if job.variant.changed is not None:
        rewritten.import_again(job.variant.changed, job.variant.to)
    fresh = importlib.import_module(tasks.__name__)
    return job.identity | {"results": [one(fresh, task, job.variant) for task in job.tasks]}


def one(fresh, task: Task, variant: Variant) -> list[float | None]:
    """One run; whatever goes wrong with a changed number, it has not solved the task.

    Nothing may go wrong without a change.
    """
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        found = fresh.perform(task, variant.rule, variant.options)
    except (Exception, Spent) as error:
        if variant in BASELINES and not isinstance(error, Spent):
            raise
        found = [math.inf] * len(tasks.measures(task.collection))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in found]


class Processes:
    """Jobs that run at the same time, each in a copy of this process.

    The copies are made by the only thread there is: a lock that another one held at that moment
    would never be released in the copy. So this is no `multiprocessing.Pool`.
    """

    def __init__(self, most: int) -> None:
        self._most, self._running = most, {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.join()

    def __bool__(self) -> bool:
        return bool(self._running)

    @property
    def full(self) -> bool:
        return len(self._running) >= self._most

    def start(self, job: Job) -> None:
        here, there = multiprocessing.Pipe(duplex=False)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=lambda: there.send(perform(job)))
        process.start()
        there.close()
        self._running[here] = process

    def finished(self, seconds: float) -> Iterator[Run]:
        """The results that come within so many seconds; a process that died has none."""
        for pipe in multiprocessing.connection.wait(list(self._running), seconds):
            with suppress(EOFError):
                yield pipe.recv()
            pipe.close()
            self._running.pop(pipe).join()


def run_all(store: Store, todo: Sequence[Job], most: int, seconds: float) -> int:
    """Add the runs to the file until all are done or the time is over; how many were done."""
    end, written, waiting, done = time.monotonic() + seconds, time.monotonic(), [], 0
    pending = iter(todo)
    with Processes(most) as processes:
        while time.monotonic() < end:
            while not processes.full and (job := next(pending, None)) is not None:
                processes.start(job)
            if not processes:
                break
            waiting += processes.finished(EVERY)
            if time.monotonic() - written > EVERY:
                store.add(*waiting)
                done, waiting, written = done + len(waiting), [], time.monotonic()
                print(f"{done}/{len(todo)} blocks", flush=True)
    store.add(*waiting)
    return done + len(waiting)
