"""The one place where a run calls its problem: counting, the best point, the budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.functions import Counts, Problem, VerbCounter
from ksdmin._problem.subsets import Subsets
from ksdmin._result import Status

# Values computed in a dtype carry some roundings; a problem that knows better says so (`noise`).
ROUNDINGS = 30


@dataclass(frozen=True)
class Evaluated:
    """A point and what is known there, as a mean over the samples `idx`."""

    x: Array
    idx: Any
    value: float
    gradient: Array
    diagonal: Array | None = None


class Evaluator:
    """A problem during one run.

    Parameters
    ----------
    problem : Problem
        What is minimised.
    space : Space
        Where its vectors live.
    subsets : Subsets
        Tells the sizes of sets, and which one is everything.
    maxfun, maxtime : float
        The budget: values computed, and seconds.
    """

    def __init__(
        self, problem: Problem, space: Space, subsets: Subsets, maxfun: float, maxtime: float
    ) -> None:
        self.space, self.subsets, self.counts = space, subsets, Counts()
        self._take(problem)
        self.separate_gradient = bool(getattr(problem, "separate_gradient", False))
        self.projects = hasattr(problem, "value_and_projected_gradient")
        self.has_diagonal = bool(getattr(problem, "has_diagonal", False))
        self.nonlinear = bool(getattr(problem, "nonlinear", False))
        self.diagonal_power = float(getattr(problem, "diagonal_power", 1.0))
        self.slope_error = _error(problem, "gradient_accuracy", space)
        self.product_error = _error(problem, "product_accuracy", space)
        self._maxfun, self._maxtime = maxfun, maxtime
        self._began = time.perf_counter()

    def _take(self, problem: Problem) -> None:
        self._bare, own = problem, getattr(problem, "counting", None)
        self._problem = own(self.counts) if own else VerbCounter(problem, self.counts)
        self.noise = float(getattr(problem, "noise", None) or ROUNDINGS * self.space.eps)
        self.best: tuple[Array, float] | None = None

    def sharpen(self) -> bool:
        """Go over to finer arithmetic, where the problem has any.

        What was computed before is not to be compared with what comes.
        """
        offer = getattr(self._bare, "sharper", None)
        sharper = offer() if offer else None
        if sharper is not None:
            self._take(sharper)
        return sharper is not None

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._began

    def spent(self) -> Status | None:
        """Which part of the budget is used up, if any."""
        if self.counts.nfev >= self._maxfun:
            return Status.MAXFUN
        if self.seconds >= self._maxtime:
            return Status.MAXTIME
        return None

    def value(self, x: Array, idx: Any) -> float:
        """The value on `idx`."""
        value: float = self._charged(idx, self._problem.value, x, idx)
        self._remember(x, idx, value)
        return value

    def value_and_gradient(self, x: Array, idx: Any) -> tuple[float, Array]:
        """The value and the gradient on `idx`."""
        value, g = self._charged(idx, self._problem.value_and_gradient, x, idx)
        self._remember(x, idx, value)
        return value, g

    def value_and_slopes(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        """The value and V^T g on `idx`, where the problem has a cheaper way to it than g."""
        verb = self._problem.value_and_projected_gradient
        value, slopes = self._charged(idx, verb, x, idx, V)
        self._remember(x, idx, value)
        return value, slopes

    def evaluate(self, x: Array, idx: Any) -> Evaluated:
        """Everything that an iteration starts from (Alg. 3, lines 4 and 5)."""
        if not self.has_diagonal:
            return Evaluated(x, idx, *self.value_and_gradient(x, idx))
        value, g, D = self._charged(idx, self._problem.value_and_gradient, x, idx, diagonal=True)
        self._remember(x, idx, value)
        return Evaluated(x, idx, value, g, D)

    def curvature(self, x: Array, idx: Any) -> Callable[[Array], Array]:
        """The product v -> Hv on `idx`."""
        product = self._charged(idx, self._problem.curvature, x, idx)
        return lambda v: self._charged(idx, product, v)

    def _charged(self, idx: Any, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a verb, and turn what it counted into passes over the data."""
        before = self.counts.work
        out = verb(*args, **kwargs)
        size, whole = self.subsets.size_of(idx), self.subsets.size_of(self.subsets.full)
        share = size / whole if size is not None and whole else float("nan")
        self.counts.passes += (self.counts.work - before) * share
        return out

    def _remember(self, x: Array, idx: Any, value: float) -> None:
        if self.subsets.is_full(idx) and (self.best is None or value < self.best[1]):
            self.best = (x, value)


def _error(problem: Problem, accuracy: str, space: Space) -> float:
    """The relative error that differences make, 0 where derivatives are exact."""
    power = float(getattr(problem, accuracy, 1.0))
    return space.eps**power if power < 1 else 0.0
