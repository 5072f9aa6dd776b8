"""Passes and seconds to each gap.

A value or a gradient on |S| of N samples is |S| / N passes, a product twice that, the diagonal
counted like a gradient. What the recorder evaluates for itself is neither counted nor timed.
"""

from __future__ import annotations

import time

import numpy as np

from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.harness.recorder import Clock, Recorder

TARGETS = (1e-3, 1e-6, 1e-9)  # relative gaps


class GapRecorder(Recorder):
    """Notes when the gap falls below each target, by wall time and by processor time.

    Parameters
    ----------
    problem : LinearModel
        For the recorder's own evaluations.
    optimum : dict
        The least value and the value at the start.
    cap : float
        The passes that a run may take.
    """

    def __init__(self, problem: LinearModel, optimum: dict[str, float], cap: float) -> None:
        super().__init__(passes=cap)
        self._problem, self._least = problem, optimum["value"]
        self._range = optimum["start"] - optimum["value"]
        self.reached, self.gap = {}, 1.0
        self._processor = Clock(time.process_time)

    def see(self, x: np.ndarray, value: float | None, passes: float) -> None:
        """After an iteration; `value` is None where the method does not know it on all samples."""
        with self.clock.paused(), self._processor.paused():
            self.work.iterations += 1
            self.work.passes = passes
            value = self._problem.value(x) if value is None else value
            self.gap = (value - self._least) / self._range
        for target in TARGETS:
            if self.gap <= target:
                self.reached.setdefault(f"{target:.0e}", self._spent_so_far())

    @property
    def done(self) -> bool:
        """Whether all targets have been reached."""
        return len(self.reached) == len(TARGETS)

    def end(self, x: np.ndarray, passes: float) -> dict:
        """What is stored of a run that ends at `x`."""
        self.work.passes = passes
        spent = self._spent_so_far()
        _, g = self._problem.value_and_gradient(x)
        about = {"reached": self.reached, "cap": self.passes, "gap": self.gap}
        return about | {"gradient": float(np.abs(g).max())} | spent

    def _spent_so_far(self) -> dict[str, float]:
        return {
            "passes": round(self.work.passes, 2),
            "seconds": round(self.elapsed, 3),
            "processor": round(self._processor.seconds, 3),
            "nit": self.work.iterations,
        }
