"""Points of a run that trains a net, and what they are worth.

The clock starts when a method starts and includes all that it does: capturing CUDA graphs, line
searches, copies to the host. Not included: making the net, copying data to the device, and a first
evaluation that loads the device's libraries. Points are kept during a run and their errors
computed when it has ended, so that being watched costs no method anything.
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

from examples.harness.recorder import Recorder

GROWTH, LEAST = 1.1, 0.1  # of the seconds between kept points: about 50 in two minutes


@dataclass(frozen=True)
class Kept:
    """A point of a run."""

    seconds: float
    work: dict[str, float]
    x: Tensor


class PointRecorder(Recorder):
    """Keeps points of a run at seconds that grow by a tenth.

    Parameters
    ----------
    seconds : float
        How long the run may take.
    passes : float, optional
        How many passes over the training samples it may make.
    show : callable, optional
        Called with the seconds that have passed: a progress bar.
    now : callable, optional
        The clock's, as for every recorder.
    """

    def __init__(
        self,
        seconds: float,
        passes: float = math.inf,
        show: Callable[[float], Any] = lambda seconds: None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(seconds, passes, now)
        self.kept: list[Kept] = []
        self._show, self._due, self._diverged = show, 0.0, False

    def start(self, x: Tensor | np.ndarray) -> None:
        """Start the clock, at `x`."""
        self.clock.start()
        self.see(x)

    def spent(self) -> str:
        """Also where the parameters are no longer finite."""
        return "The parameters are no longer finite." if self._diverged else super().spent()

    def see(self, x: Tensor | np.ndarray, *, last: bool = False) -> None:
        """Keep `x` if it is time to or if it is the last one, and if it is finite."""
        now = self.elapsed
        self._show(now)
        if last or now >= self._due:
            point = torch.as_tensor(x).detach().clone()
            self._due = GROWTH * now + LEAST
            self._diverged = not bool(point.isfinite().all())
            if not self._diverged:
                self.kept.append(Kept(now, asdict(self.work), point))

    def trace(self, assess: Callable[[Tensor], dict[str, float]]) -> dict[str, list[float]]:
        """What was kept by columns, with the errors that `assess` finds there."""
        points = [{"seconds": round(p.seconds, 3)} | p.work | assess(p.x) for p in self.kept]
        return {name: [_rounded(point[name]) for point in points] for name in points[0]}


def _rounded(value: float) -> float:
    """With the digits that matter."""
    return value if isinstance(value, int) else float(f"{value:.5g}")
