"""One run of one method on one problem: what it called, what it saw, when it had to stop.

Work is f + g + 2 Hv: a call of `fun` counts 1, one of `jac` 1, one of `hessp` 2, whatever the point
(a method that asks for the value and the gradient of one point has made two calls). A Hessian
counts as n products. Seconds are those of the processor, of one thread: other programs on the
machine change them little.
"""

from __future__ import annotations

import time

import numpy as np

from examples.benchmarks.comparison.problem_sets import TARGET, TestProblem
from examples.harness.recorder import Recorder

FEASIBLE = 1e-10  # points outside the box by more than this reach no target


class CountedFunctions(Recorder):
    """The functions of a problem, counted."""

    def __init__(self, problem: TestProblem, work: float, seconds: float) -> None:
        super().__init__(seconds, passes=work, now=time.process_time)
        self.problem = problem
        self.inside = 0.0  # seconds in the problem's own functions
        self.best, self.best_x = np.inf, problem.x0
        self.trace: list[tuple[int, float]] = []
        self.hessian_at, self.hessian = b"", None
        self.outside = 0  # evaluations outside the box, by more than rounding
        self.violation = self.farthest = 0.0  # of the latest point, of any
        self.gradient_work: int | None = None
        self.gradient_seconds: float | None = None
        self.f0 = problem.value(problem.x0)
        self.g0 = problem.stationarity(problem.x0, problem.gradient(problem.x0))
        self.target = TARGET * max(1.0, self.g0)
        self.clock.start()

    def _point(self, x) -> np.ndarray:
        self.check()
        x = np.array(x, float)
        self.violation = self.problem.violation(x)
        self.farthest = max(self.farthest, self.violation)
        self.outside += self.violation > FEASIBLE
        return x

    def _timed(self, function, *args):
        begin = time.process_time()
        try:
            return function(*args)
        finally:
            self.inside += time.process_time() - begin

    def fun(self, x) -> float:
        x = self._point(x)
        self.work.count(values=1)
        value = self._timed(self.problem.value, x)
        if value < self.best and self.violation <= FEASIBLE:
            self.best, self.best_x = value, x
            self.trace.append((self.work.passes, value))
        return value

    def jac(self, x) -> np.ndarray:
        x = self._point(x)
        self.work.count(gradients=1)
        gradient = self._timed(self.problem.gradient, x)
        if self.gradient_work is None and self.violation <= FEASIBLE:
            self._look(x, gradient)
        return gradient

    def _look(self, x: np.ndarray, gradient: np.ndarray) -> None:
        if self.problem.stationarity(x, gradient) <= self.target:
            self.gradient_work, self.gradient_seconds = self.work.passes, self.elapsed

    def _curvature(self, x: np.ndarray):
        """The Hessian at the latest point is kept: products at one point come in rows."""
        if (at := x.tobytes()) != self.hessian_at:
            self.hessian, self.hessian_at = self._timed(self.problem.hessian, x), at
        return self.hessian

    def hessp(self, x, p) -> np.ndarray:
        x = self._point(x)
        self.work.count(products=1)
        hessian = self._curvature(x)
        return self._timed(lambda: hessian @ np.asarray(p, float))

    def hess(self, x) -> np.ndarray:
        x = self._point(x)
        self.work.count(products=len(x))
        hessian = self._curvature(x)
        return hessian if isinstance(hessian, np.ndarray) else hessian.toarray()

    def end(self) -> dict:
        """What is known when the method has returned, or was stopped."""
        return {
            "n": len(self.problem.x0),
            "nf": self.work.values,
            "ng": self.work.gradients,
            "nh": self.work.products,
            "work": self.work.passes,
            "seconds": self.elapsed,
            "inside": self.inside,
            "f0": self.f0,
            "g0": self.g0,
            "gradient_work": self.gradient_work,
            "gradient_seconds": self.gradient_seconds,
            "outside": self.outside,
            "farthest": self.farthest,
            "best": self.best,
            "trace": self.trace,
        }

    def final(self, x) -> dict:
        """Value and gradient at the method's answer (its best point, if it was stopped)."""
        x = self.best_x if x is None else np.array(x, float)
        value, gradient = float(self.problem.value(x)), self.problem.gradient(x)
        return {"f": value, "g": self.problem.stationarity(x, gradient)}
