"""Where a run stands: what every method's state has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ksdmin._problem.subsets import Sets, Stream
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Ledger
from ksdmin._run.fit_tests import Held


@dataclass(frozen=True)
class Sampling:
    """The sets of the coming iteration.

    Attributes
    ----------
    sets : Sets
        A, B and C.
    rest : Stream or None
        What is left of the user's iterable of sets, where there is one.
    exhausted : bool
        Whether that had no more for this iteration.
    others : object or None
        Where A, B and C are one set, as many other samples: they show whether it is too small.
    """

    sets: Sets
    rest: Stream | None
    exhausted: bool = False
    others: Any = None


@dataclass(frozen=True)
class State:
    """A value from which a method's `step` makes the next one; nothing else changes in a run.

    Attributes
    ----------
    here : Evaluated
        The point, with value, gradient and diagonal on a set A.
    gradient_norm : float
        The largest magnitude in the gradient here.
    first_norm : float
        The same at x0, on the whole set; NaN where that is not known.
    sampling : Sampling
        The sets of the coming iteration.
    ledger : Ledger
        What has been spent and found, and the arithmetic in force.
    last_decrease : float
        What the last step did to the value; NaN where it must not count for `ftol` and `xtol`.
    lowest : float
        A value below which the objective counts as unbounded.
    broken : bool
        Whether the curvature gave no finite product at all.
    record : Record
        The last line of the history.
    """

    here: Evaluated
    gradient_norm: float
    first_norm: float
    sampling: Sampling
    ledger: Ledger
    last_decrease: float
    lowest: float
    broken: bool
    record: Record

    @property
    def sets(self) -> Sets:
        """The sets of the coming iteration."""
        return self.sampling.sets

    @property
    def curvature_is_sampled(self) -> bool:
        """Whether B, the set of the curvature, is another one than that of the gradient."""
        return self.sampling.sets.B is not self.here.idx

    def with_tolerances(self, given: Mapping[str, float]) -> Self:
        """The state of a run that goes on with other tolerances, where it keeps any."""
        return self

    @property
    def tests_itself(self) -> bool:
        """Whether tests free of units are those that count."""
        return self.ledger.problem.unit_free

    @property
    def is_fit(self) -> bool:
        """Whether the steps make these tests, and nobody else does."""
        return False

    @property
    def held(self) -> Held | None:
        """That test, where it holds here."""
        return None

    @property
    def stalled(self) -> bool:
        """Whether the last iterations made no progress: a method says what that is."""
        raise NotImplementedError


UNBOUNDED_BELOW = -1e20  # times max(1, |f(x0)|): no sensible minimum lies below


def lowest_sensible(value: float) -> float:
    """The value below which an objective that starts with `value` counts as unbounded."""
    return UNBOUNDED_BELOW * max(1.0, abs(value)) if math.isfinite(value) else -math.inf
