"""Wrappers of a problem: one counts its evaluations, one times the parts of the cost."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import ksdmin
from examples.harness.net_training.method_interface import Settings
from examples.harness.net_training.training import Training
from examples.harness.recorder import Work

PARTS = ("gradient", "preconditioner", "products", "search")


def problem_of(training: Training, settings: Settings, precond: str | None = None) -> Any:
    """What ksdmin makes of the net, the loss and the training samples."""
    samples = training.data.train
    return ksdmin.from_torch(
        training.net,
        training.task.loss,
        (samples.inputs, samples.targets),
        curvature=settings.curvature,
        l2=training.l2,
        precond=precond,
        precision=settings.precision,
    )


class Counted:
    """A problem on the whole set that counts the evaluations of SciPy's or torch's methods."""

    def __init__(self, problem: Any, work: Work) -> None:
        self._problem, self._work = problem, work
        self.x0, self.subsets = problem.x0, problem.subsets

    def value(self, x: Any, idx: Any) -> float:
        """The value alone."""
        self._work.count(values=1)
        return self._problem.value(x, idx)

    def value_and_gradient(self, x: Any, idx: Any, *, diagonal: bool = False) -> Any:
        """Two passes."""
        self._work.count(values=1, gradients=1)
        return self._problem.value_and_gradient(x, idx, diagonal=diagonal)

    def curvature(self, x: Any, idx: Any) -> Callable[[Any], Any]:
        """Products of two passes each."""
        product = self._problem.curvature(x, idx)

        def counted(v: Any) -> Any:
            self._work.count(products=1)
            return product(v)

        return counted


class Timed:
    """A problem that waits for the device after each evaluation, and adds up their seconds."""

    def __init__(self, problem: Any) -> None:
        self._problem, self._seconds = problem, dict.fromkeys(PARTS, 0.0)
        self.x0, self.subsets = problem.x0, problem.subsets
        # With the problem's own traits and counts the timed run is the same run.
        self.traits = replace(problem.traits, counts_itself=True)

    def counting(self, counts: Any) -> Timed:
        """The problem for a run, which adds to `counts`; timed by the same clock."""
        counted = copy.copy(self)
        counted._problem = self._problem.counting(counts)
        return counted

    def in_finer_arithmetic(self) -> Any:
        """The same problem in more precise arithmetic, timed by the same clock."""
        finer = self._problem.in_finer_arithmetic()
        if finer is None:
            return None
        timed = Timed(finer)
        timed._seconds = self._seconds
        return timed

    def value(self, x: Any, idx: Any) -> float:
        """Counts as search: KSD's and HF's line searches ask for values."""
        return self._timed("search", self._problem.value, x, idx)

    def value_and_gradient(self, x: Any, idx: Any, *, diagonal: bool = False) -> Any:
        """The gradient on A, with the diagonal of the preconditioner."""
        function = self._problem.value_and_gradient
        return self._timed("gradient", function, x, idx, diagonal=diagonal)

    def value_and_projected_gradient(self, x: Any, idx: Any, V: Any) -> Any:
        """What the search within the subspace evaluates on C."""
        return self._timed("search", self._problem.value_and_projected_gradient, x, idx, V)

    def curvature(self, x: Any, idx: Any) -> Callable[[Any], Any]:
        """The products on B."""
        product = self._timed("products", self._problem.curvature, x, idx)
        return lambda v: self._timed("products", product, v)

    def factors(self, x: Any, idx: Any) -> Any:
        """The Kronecker factors on A; their inverses and the solves with them are algebra."""
        return self._timed("preconditioner", self._problem.factors, x, idx)

    def matrix(self, x: Any, idx: Any) -> Any:
        """The whole curvature matrix on B."""
        return self._timed("products", self._problem.matrix, x, idx)

    def jacobian(self, x: Any, idx: Any) -> Any:
        """The rows of the Jacobian on B; residuals at other points count as search."""
        rows = self._timed("products", self._problem.jacobian, x, idx)
        if rows is None or rows.at is None:
            return rows
        return rows._replace(at=lambda y: self._timed("search", rows.at, y))

    def shares(self, total: float) -> dict[str, float]:
        """Seconds of the parts; the algebra of the basis is what is left of the total."""
        parts = {name: round(seconds, 3) for name, seconds in self._seconds.items()}
        return {**parts, "algebra": round(total - sum(self._seconds.values()), 3)}

    def _timed(self, part: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._wait()  # for what was started before, which is not to be counted here
        begin = time.perf_counter()
        out = function(*args, **kwargs)
        self._wait()
        self._seconds[part] += time.perf_counter() - begin
        return out

    def _wait(self) -> None:
        if self.x0.is_cuda:
            torch.cuda.synchronize()
