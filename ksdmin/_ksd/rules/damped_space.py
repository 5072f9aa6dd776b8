"""Damped space: the dampings of exact Gauss-Newton directions, and when a Krylov space does more.

A sum of squares whose Jacobian is affordable takes the directions for a handful of dampings
(``_ksd/damped_space.py``), and the search on the loss itself finds the step among them. Its length
says which damping that was, as the directions grow shorter with the damping: the next ones lie
around it.

On a plateau, where several such steps lower the loss by next to nothing, a wide Krylov space may
find what a few directions do not: one is tried, and whichever has lowered the loss by the larger
factor, for what it cost, goes on. What a step costs the cost model says, never a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed

# Of the mean eigenvalue of the curvature: the first damping, and the least, which is rounding.
FIRST_DAMPING, LEAST_DAMPING = 1e-2, 1e-15
# The dampings around the last one, as powers of ten.
POWERS = (-3.0, -1.5, 0.0, 1.5, 3.0)
# On a plateau so many steps in a row lower the loss by less than this share each. Not settled: one
# slow step is too few (many a net has slow first steps, which these directions overcome).
SLOW_STEPS, PLATEAU = 5, 0.01


@dataclass(frozen=True)
class DampedSpace:
    """The damping of the next step, and what the last steps of either kind have gained.

    Attributes
    ----------
    damping : float
        The one whose direction is as long as the last step; NaN before it.
    rate, krylov_rate : float
        By which factor, as a logarithm, the last step of this kind and the last one with a Krylov
        space have lowered the loss, for each unit of work; infinite and NaN before the first.
    slow : int
        How many steps of this kind in a row have hardly lowered the loss.
    allowed : bool
        Whether there is such a space at all.
    """

    damping: float = math.nan
    rate: float = math.inf
    krylov_rate: float = math.nan
    slow: int = 0
    allowed: bool = True

    @classmethod
    def off(cls) -> DampedSpace:
        """The paper: always a Krylov space."""
        return cls(allowed=False)

    def worthwhile(self, costs: Costs, K: int) -> bool:
        """Whether it is less work than a Krylov space of K vectors, and gains as much."""
        if not self.allowed or costs.exact > costs.krylov(min(K, costs.n)):
            return False
        return self.slow < SLOW_STEPS or self.rate >= self.krylov_rate

    def centre(self, scale: float) -> float:
        """The damping to begin with, for a curvature whose mean eigenvalue is `scale`."""
        damping = FIRST_DAMPING * scale if math.isnan(self.damping) else self.damping
        return max(damping, LEAST_DAMPING * scale)

    def dampings(self, scale: float) -> list[float]:
        """Those of the next directions, in ascending order."""
        around = (self.centre(scale) * 10.0**power for power in POWERS)
        return [damping for damping in around if damping >= LEAST_DAMPING * scale]

    def after(self, outcome: Outcome) -> DampedSpace:
        """The rule after a step."""
        if not self.allowed or not outcome.measured:
            return self
        fall = logarithmic_fall(outcome)
        if not outcome.damped_lengths:
            return changed(self, krylov_rate=fall / outcome.work)
        damping = outcome.damped_lengths[-1][0]
        if outcome.step_norm:
            damping = damping_of_length(outcome.step_norm, outcome.damped_lengths)
        slow = self.slow + 1 if fall < PLATEAU else 0
        return changed(self, damping=damping, rate=fall / outcome.work, slow=slow)


def logarithmic_fall(outcome: Outcome) -> float:
    """log(value before / value after), for a loss that is not negative; 0 for no step."""
    if not (outcome.accepted and outcome.moved and outcome.actual > 0):
        return 0.0
    return math.log1p(outcome.actual / outcome.value) if outcome.value > 0 else math.inf


def damping_of_length(length: float, known: tuple[tuple[float, float], ...]) -> float:
    """The damping whose direction has this length: between those `known`, on logarithmic scales.

    The directions get shorter from one to the next.
    """
    dampings, lengths = np.log(known).T
    return float(np.exp(np.interp(math.log(length), lengths[::-1], dampings[::-1])))
