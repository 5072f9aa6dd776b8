"""The one place where a run calls its problem: counting, the best point, the budget.

The `Ledger`, a part of a run's state, holds what evaluations have found and cost. An `Evaluator`
continues from a ledger for one step, and ends in the next ledger.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.counting import CountingProblem, Counts
from ksdmin._problem.kronecker import DampedFactors, Factors
from ksdmin._problem.protocol import VALUE_ROUNDINGS, Jacobian, Traits
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.values import made
from ksdmin._result import Status

LEDGER = "_ksdmin_ledger"  # the attribute of an exception with what has been spent


@dataclass(frozen=True)
class Evaluated:
    """A point and what is known there, as a mean over the samples `idx`.

    The `diagonal` has the form that the method uses (`Run.as_preconditioner`).
    """

    x: Array
    idx: Any
    value: float
    gradient: Array
    diagonal: Array | None = None


class Halt(BaseException):
    """Time is up, or Ctrl-C was pressed: the step is given up.

    (It is not an Exception, so that `except Exception` around user code does not catch it.)
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class Interrupt:
    """Whether the user has asked a run to end, and why it ends, once all its processes know."""

    asked = False
    agreed: Status | None = None


@dataclass(frozen=True)
class Budget:
    """What a run may spend: values computed, and seconds since it `began`; and an `interrupt`.

    Where several processes have to agree, a clock and Ctrl-C count once all know of them.
    """

    maxfun: float
    maxtime: float
    began: float = field(default_factory=lambda: time.perf_counter())
    interrupt: Interrupt = field(default_factory=Interrupt)
    agrees: bool = False  # whether several processes have to

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.began

    def after(self, seconds: float) -> Budget:
        """The budget of a run that continues after so many seconds."""
        return replace(self, began=time.perf_counter() - seconds)

    def spent(self, counts: Counts) -> Status | None:
        """Which part of the budget is used up, if any."""
        return Status.MAXFUN if counts.nfev >= self.maxfun else self.over

    @property
    def over(self) -> Status | None:
        """Why no further evaluation may begin, if so."""
        if self.agrees:
            return self.interrupt.agreed
        if self.interrupt.asked:
            return Status.INTERRUPTED
        return Status.MAXTIME if self.seconds >= self.maxtime else None

    def wishes(self) -> tuple[bool, bool]:
        """Whether this process was interrupted, and whether its time is up."""
        return self.interrupt.asked, self.seconds >= self.maxtime

    def agree(self, interrupted: bool, out_of_time: bool) -> None:
        """Learn what holds for all processes by now."""
        if interrupted or out_of_time:
            self.interrupt.agreed = Status.INTERRUPTED if interrupted else Status.MAXTIME

    def check(self) -> None:
        """Raise `Halt` if no further evaluation may begin."""
        if not self.agrees and not self.interrupt.asked and self.maxtime == math.inf:
            return  # the usual case
        status = self.over
        if status is not None:
            raise Halt(status)


@dataclass(frozen=True)
class Ledger:
    """What a run has spent and found so far."""

    # In the arithmetic that is in force, with what it remembers of its last point.
    problem: CountingProblem
    # Not to be changed: an evaluator goes on from a copy.
    counts: Counts = field(default_factory=Counts)
    # The point with the lowest value on the whole set, and that value.
    best: tuple[Array, float] | None = None
    refined: int = 0  # how often the run has turned to finer arithmetic


class Evaluator:
    """The evaluations of one step of a run; as a context, it gives an exception its ledger.

    So what has been spent by then is known. (Its own methods, as contextlib's decorator sets
    attributes of exceptions, and some refuse that.)

    Attributes
    ----------
    traits : Traits
        Those that the method uses, of the problem in the arithmetic that is in force.
    noise, gradient_error : float
        The relative errors of values, by rounding, and of gradients, by differences.
    problem : CountingProblem
        For what it says of itself. Its verbs are called here only.
    """

    def __init__(
        self,
        ledger: Ledger,  # where it goes on from; it is not changed
        space: Space,
        subsets: Subsets,  # knows the sizes of sets, and which one is everything
        budget: Budget,
        # problem -> its traits, as far as the method uses them.
        traits_of: Callable[[CountingProblem], Traits],
        # (traits, diagonal) -> what the method makes of a diagonal.
        as_preconditioner: Callable[[Traits, Array], Array],
        *,
        # Whether an evaluation may not even begin when time is up. The start and the end of a run
        # are not, nor is the end of a step whose work would be lost (`let_finish`).
        limited: bool = False,
        # Whether the step is given up then: not on samples, where its work would be lost.
        gives_up: bool = False,
    ) -> None:
        self.space, self.subsets, self.budget = space, subsets, budget
        self._begin: Callable[[], None] = budget.check if limited else lambda: None
        self._gives_up = gives_up
        self._traits_of, self._as_preconditioner = traits_of, as_preconditioner
        self.counts, self.best = ledger.counts.copy(), ledger.best
        self._refined = ledger.refined
        # The set of the last call, its share of all samples, and whether it is the whole set.
        self._idx, self._share, self._full = subsets.full, 1.0, True
        if not subsets.n:
            self._idx, self._share, self._full = None, math.nan, False
        self._passed = self.counts.work  # how much of it is already counted in passes
        self._take(ledger.problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            with suppress(Exception):
                setattr(error, LEDGER, self.ledger)

    def _take(self, problem: CountingProblem) -> None:
        self.problem, self.traits = problem.counting(self.counts), self._traits_of(problem)
        noise = self.traits.noise
        self.noise = VALUE_ROUNDINGS * self.space.eps if noise is None else float(noise)
        self.gradient_error = self._error(self.traits.gradient_accuracy)

    @property
    def product_error(self) -> float:
        """The relative error of products."""
        return self._error(self.traits.product_accuracy)

    def _error(self, power: float) -> float:
        """The relative error of differences; 0 if derivatives are exact."""
        return self.space.eps**power if power < 1 else 0.0

    @property
    def ledger(self) -> Ledger:
        """What has been spent and found by now."""
        return made(
            Ledger,
            problem=self.problem,
            counts=self.counts.copy(),
            best=self.best,
            refined=self._refined,
        )

    def refine(self) -> bool:
        """Turn to finer arithmetic, if the problem has any.

        Values computed before must not be compared with later ones.
        """
        finer = self.problem.in_finer_arithmetic()
        if finer is not None:
            self._take(finer)
            self.best, self._refined = None, self._refined + 1
        return finer is not None

    @property
    def moves(self) -> bool:
        """Whether the arithmetic now has another dtype than the run's vectors."""
        return self.problem.home(self.space) is not self.space

    def let_finish(self) -> None:
        """From here on, evaluations begin even if time is up."""
        self._begin = lambda: None

    def spent(self) -> bool:
        """Whether any part of the budget is used up.

        A step cut short by the clock would differ from that of a run with more time. If giving it
        up loses nothing, it is given up.
        """
        if self._gives_up:  # the next evaluation checks the clock
            return self.counts.nfev >= self.budget.maxfun
        return self.budget.spent(self.counts) is not None

    def value(self, x: Array, idx: Any) -> float:
        """The value on `idx`."""
        self._begin()
        value = self.problem.value(x, idx)
        self._charge(idx, x, value)
        return value

    def value_beside(self, x: Array, idx: Any) -> float:
        """A value that checks the gradient at another point; what is known there is kept."""
        self._begin()
        value = self.problem.value_beside(x, idx)
        self._charge(idx)
        return value

    def value_and_gradient(self, x: Array, idx: Any) -> tuple[float, Array]:
        """The value and the gradient on `idx`."""
        self._begin()
        value, g = self.problem.value_and_gradient(x, idx)
        self._charge(idx, x, value)
        return value, g

    def value_and_slopes(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        """The value and V^T g on `idx`, if the problem can compute it more cheaply than g."""
        self._begin()
        value, slopes = self.problem.value_and_projected_gradient(x, idx, V)
        self._charge(idx, x, value)
        return value, slopes

    def evaluate(self, x: Array, idx: Any, *, diagonal: bool) -> Evaluated:
        """What an iteration starts from (Alg. 3, lines 4 and 5).

        The `diagonal` is computed if it is asked for, and the problem has one.
        """
        if not diagonal or not self.traits.has_diagonal:
            return Evaluated(x, idx, *self.value_and_gradient(x, idx))
        self._begin()
        value, g, D = self.problem.value_and_gradient(x, idx, diagonal=True)
        self._charge(idx, x, value)
        return Evaluated(x, idx, value, g, self._as_preconditioner(self.traits, D))

    def curvature(self, x: Array, idx: Any) -> Callable[[Array], Array]:
        """The product v -> Hv on `idx`."""
        self._begin()
        product = self.problem.curvature(x, idx)
        self._charge(idx)

        def charged(v: Array) -> Array:
            self._begin()
            out = product(v)
            self._charge(idx)
            return out

        return charged

    def matrix(self, x: Array, idx: Any) -> Array | None:
        """The curvature matrix on `idx`; None if there is none after all.

        If the problem has no verb for it, it is made of a product for each column.
        """
        if not self.traits.has_matrix:
            product, space = self.curvature(x, idx), self.space
            return space.xp.stack([product(space.unit(i)) for i in range(space.n)])
        self._begin()
        H = self.problem.matrix(x, idx)
        self._charge(idx)
        return H

    def jacobian(self, x: Array, idx: Any) -> Jacobian | None:
        """The curvature on `idx` as rows; None if there are none after all."""
        self._begin()
        return self._charged(self.problem.jacobian(x, idx), idx)

    def sparse_jacobian(self, x: Array, idx: Any, reweighting: float) -> Jacobian | None:
        """The same with rows that are kept sparse."""
        self._begin()
        return self._charged(self.problem.sparse_jacobian(x, idx, reweighting), idx)

    def _charged(self, J: Jacobian | None, idx: Any) -> Jacobian | None:
        self._charge(idx)
        if J is None or J.at is None:
            return J
        uncounted = J.at

        def at(y: Array) -> tuple[float, Array]:
            self._begin()
            value, residuals = uncounted(y)
            value = float(value)
            self._charge(idx, y, value)
            return value, residuals

        return J._replace(at=at)

    def factors(self, x: Array, idx: Any) -> Factors:
        """Kronecker factors of the curvature on `idx`."""
        self._begin()
        factors = self.problem.factors(x, idx)
        size = self.subsets.size_of(self.subsets.full if self.subsets.is_full(idx) else idx)
        # They may use a part of the set
        part = min(1.0, factors.samples / size) if factors.samples is not None and size else 1.0
        self._charge(idx, part=part)
        return factors

    def _charge(
        self, idx: Any, x: Array | None = None, value: float = math.nan, part: float = 1.0
    ) -> None:
        """Convert what the problem has just counted, on this part of the set, into passes.

        If it was a value, the point may be the best one.
        """
        if self._idx is not idx:  # usually the same as in the last call
            size_of, full = self.subsets.size_of, self.subsets.is_full(idx)
            whole = size_of(self.subsets.full)
            size = whole if full else size_of(idx)
            self._share = size / whole if size is not None and whole else math.nan
            self._idx, self._full = idx, full
        work, best = self.counts.work, self.best
        self.counts.passes += (work - self._passed) * self._share * part
        self._passed = work
        # -inf is an error, or there is no minimum: do not return this point
        if (best is None or value < best[1]) and self._full and value > -math.inf:
            self.best = (x, value)


# Iterations that the factors of a point serve. Renewed in each, MNIST's auto-encoder is 12% behind
# after 18 seconds on an H200; after twenty (of twice the samples), 5%.
ITERATIONS = 5


@dataclass(frozen=True)
class KeptFactors:
    """The factors of an iteration."""

    damped: DampedFactors | None  # None where they were of no use: not finite, or all zero
    iteration: int  # when they were computed


def renewed(
    kept: KeptFactors | None, evaluator: Evaluator, here: Evaluated, damping: float, iteration: int
) -> KeptFactors | None:
    """The factors for a step from `here`: those that are `kept`, or new ones with this damping.

    None where the problem has none.
    """
    if not evaluator.traits.has_factors:
        return None
    if kept is not None and iteration < kept.iteration + ITERATIONS:
        return kept
    factors = evaluator.factors(here.x, here.idx)
    return KeptFactors(factors.damped(evaluator.space, damping + factors.penalty), iteration)
