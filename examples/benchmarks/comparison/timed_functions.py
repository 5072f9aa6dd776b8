"""A method's seconds and calls up to the first gradient that is small enough.

All methods are timed alike, whatever makes them stop: the run ends inside the call that evaluates
the first gradient g with max |g_i| <= TARGET max |g0_i|. Looking at the gradient is not timed.
Seconds are those of the processor, in one thread. Products are recomputed at every call, as those
of a `hessp` that somebody writes by hand; of S2MPJ's problems, whose Hessians are matrices, the
matrix at the latest point is kept.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from examples.benchmarks.comparison.problem_sets import TestProblem
from examples.harness.recorder import Recorder, Spent

TARGET = 1e-6  # of the gradient, relative to the first one, largest magnitudes


class Reached(Spent):
    """A gradient is small enough: the run is over, and counts."""


class TimedFunctions(Recorder):
    """The functions of a problem, counted; `reached` says whether the target was.

    Parameters
    ----------
    problem : TestProblem
        Without bounds.
    seconds : float
        The processor's time that the run may take.
    """

    def __init__(self, problem: TestProblem, seconds: float) -> None:
        super().__init__(seconds, now=time.process_time)
        self.problem, self.reached = problem, False
        self.target = TARGET * problem.stationarity(problem.x0, problem.gradient(problem.x0))
        self.inside = 0.0  # seconds in the problem's own functions
        self.x = problem.x0  # where the latest gradient was
        self.clock.start()

    def fun(self, x: np.ndarray) -> float:
        begin = self._begin()
        self.work.count(values=1)
        value = self.problem.value(x)
        self.inside += time.process_time() - begin
        return value

    def jac(self, x: np.ndarray) -> np.ndarray:
        begin = self._begin()
        self.work.count(gradients=1)
        gradient = self.problem.gradient(x)
        self.inside += time.process_time() - begin
        with self.clock.paused():
            self.x = x
            self.reached = self.problem.stationarity(x, gradient) <= self.target
        if self.reached:
            raise Reached
        return gradient

    def hessp(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        begin = self._begin()
        self.work.count(products=1)
        product = self.problem.hessian(x) @ p
        self.inside += time.process_time() - begin
        return product

    def _begin(self) -> float:
        self.check()
        return time.process_time()

    def end(self) -> dict:
        """What is stored of a run; `f0` and `f`, the values at the start and the end."""
        seconds, work, value = self.elapsed, self.work, self.problem.value
        about = {"reached": self.reached, "nf": work.values, "ng": work.gradients}
        about |= {"nh": work.products, "seconds": seconds, "inside": self.inside}
        return about | {"f0": value(self.problem.x0), "f": value(self.x)}


class LatestHessian:
    """The Hessian at the latest point is kept: products at one point come in rows."""

    def __init__(self, problem: TestProblem) -> None:
        self._make, self._at, self._known = problem.hessian, None, None

    def __call__(self, x: np.ndarray) -> object:
        if self._at is None or not np.array_equal(self._at, x):
            self._at, self._known = np.array(x), self._make(x)
        return self._known


def keeping_hessian(problem: TestProblem) -> TestProblem:
    return replace(problem, hessian=LatestHessian(problem))
