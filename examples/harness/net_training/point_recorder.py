"""The one clock and the one record that all methods share.

The clock starts when a method starts and includes all that it does: capturing CUDA graphs, line
searches, copies to the host. Not included: making the net, copying data to the device, and a first
evaluation that loads the device's libraries. Points are kept during a run and their errors
computed when it has ended, so that no method pays for being watched.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

GROWTH, LEAST = 1.1, 0.1  # of the seconds between kept points: about 50 in two minutes


@dataclass
class Work:
    """What a method has spent.

    A pass is one look at all training samples: a value or a gradient on |S| of N samples costs
    |S| / N each, a product 2 |S| / N.
    """

    iterations: int = 0
    values: int = 0
    gradients: int = 0
    products: int = 0
    passes: float = 0.0


@dataclass(frozen=True)
class Kept:
    """A point of a run."""

    seconds: float
    work: dict[str, float]
    x: Tensor


class Recorder:
    """Keeps points of a run at seconds that grow by a tenth.

    Parameters
    ----------
    seconds : float
        How long the run may take.
    passes : float, optional
        How many passes over the training samples it may make.
    show : callable, optional
        Is told the seconds that have passed: a progress bar.
    """

    def __init__(
        self,
        seconds: float,
        passes: float = math.inf,
        show: Callable[[float], Any] = lambda seconds: None,
    ) -> None:
        self.seconds, self.passes, self.kept = seconds, passes, list[Kept]()
        self._show, self._due, self._began = show, 0.0, time.perf_counter()
        self._diverged = False

    def start(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def spent(self, work: Work) -> str:
        """Why the run must end, in words; empty where it need not."""
        if self._diverged:
            return "The parameters are no longer finite."
        if self.elapsed >= self.seconds:
            return "The time limit has been reached."
        return "The limit of passes has been reached." if work.passes >= self.passes else ""

    def see(self, x: Tensor | np.ndarray, work: Work, *, last: bool = False) -> None:
        """Keep `x` if it is time to or if it is the last one, and if it is finite."""
        now = self.elapsed
        self._show(now)
        if last or now >= self._due:
            point = torch.as_tensor(x).detach().clone()
            self._due = GROWTH * now + LEAST
            self._diverged = not bool(point.isfinite().all())
            if not self._diverged:
                self.kept.append(Kept(now, asdict(work), point))

    def trace(self, assess: Callable[[Tensor], dict[str, float]]) -> dict[str, list[float]]:
        """What was kept by columns, with the errors that `assess` finds there."""
        points = [{"seconds": round(p.seconds, 3)} | p.work | assess(p.x) for p in self.kept]
        return {name: [_rounded(point[name]) for point in points] for name in points[0]}


def _rounded(value: float) -> float:
    """With the digits that matter."""
    return value if isinstance(value, int) else float(f"{value:.5g}")
