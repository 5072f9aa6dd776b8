"""What every run passes through: one clock, one way to count, one way to end.

A recorder is what methods report to. What it looks at differs: `PointRecorder` keeps points of the
training of a net, `GapRecorder` notes when a regression comes close to its optimum, and
`CountedFunctions` are the functions of a test problem as SciPy's methods call them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Spent(BaseException):
    """A limit of the run has been reached; no method catches it, as it is no Exception."""


@dataclass
class Work:
    """What a method has spent.

    A pass is one look at all samples: a value or a gradient on |S| of N samples costs |S| / N each,
    a product 2 |S| / N. Of a function that is no sum of losses every evaluation is on all samples.
    """

    iterations: int = 0
    values: int = 0
    gradients: int = 0
    products: int = 0
    passes: float = 0

    def count(self, *, values: int = 0, gradients: int = 0, products: int = 0) -> None:
        """Evaluations on all samples."""
        self.values += values
        self.gradients += gradients
        self.products += products
        self.passes += values + gradients + 2 * products


class Clock:
    """Seconds since its start, by `now`; what a recorder evaluates for itself can be left out."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._began = now, now()

    def start(self) -> None:
        """From here on."""
        self._began = self._now()

    @property
    def seconds(self) -> float:
        """That have passed."""
        return self._now() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens here takes no time."""
        stopped = self._now()
        try:
            yield
        finally:
            self._began += self._now() - stopped


class Recorder:
    """The clock, the work and the limits of one run.

    Parameters
    ----------
    seconds, passes : float
        What the run may take.
    now : callable
        The clock's: wall time, or `time.process_time`.

    Attributes
    ----------
    work : Work
        What has been spent so far.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        passes: float = math.inf,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds, self.passes = seconds, passes
        self.clock, self.work = Clock(now), Work()

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the clock."""
        return self.clock.seconds

    def spent(self) -> str:
        """Why the run must end, in words; empty where it need not."""
        if self.elapsed >= self.seconds:
            return "The time limit has been reached."
        return "The limit of passes has been reached." if self.work.passes >= self.passes else ""

    def check(self) -> None:
        """End the run where it must."""
        if reason := self.spent():
            raise Spent(reason)
