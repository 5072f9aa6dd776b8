"""Forcing: how accurately the Newton step in the Krylov space must solve H d = -g.

The space grows until the relative residual is at most the forcing term (an inexact Newton method).
The term follows Eisenstat and Walker (1996), in values: how far the quadratic model was off in the
last step, and how fast the gradient falls. Without it (K vectors always) 74 classic problems take
69% more work. The intervals below are measured by examples/benchmarks/ablation.py; on
regressions other draws alone change the passes by 4%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.krylov import Growth
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed

# Nocedal and Wright, eq. 7.3. From 0.25 to 0.9 the work on classic problems changes by -1% to +2%,
# the passes of regressions by -6% to +8%.
LARGEST = 0.5
# What an accurate model may bring it to. From 1e-4 to 1e-2 the work changes by +5% to -1%.
SMALLEST = 1e-3
# Eisenstat and Walker's second choice, 0.9 (|g_new| / |g_old|)^2. From 0.5 to 1: -2% to -1%.
GRADIENT_FACTOR = 0.9
# Their safeguard: a large forcing term falls by this power of itself at most in a step. That a
# short step went as predicted says little of the next, long one. Powers from 1.2 to 2 change the
# work by -2% to 0%, thresholds from 0.03 to 0.3 by 1%.
SAFEGUARD_POWER, SAFEGUARD_ABOVE = (1 + 5**0.5) / 2, 0.1


@dataclass(frozen=True)
class Forcing:
    """The relative residual that the next Newton step should have; None: the space grows to K."""

    value: float | None = LARGEST

    @classmethod
    def off(cls) -> Forcing:
        """The paper: the space always has K vectors."""
        return cls(None)

    def satisfied(self, growth: Growth) -> bool:
        """Whether the space has grown enough."""
        return self.value is not None and growth.residual() <= self.value

    def after(self, outcome: Outcome) -> Forcing:
        """The forcing of the next step; after one that was not taken, the same."""
        if self.value is None or not outcome.accepted:
            return self
        predicted, before = outcome.model_reduction_on_new_A, outcome.previous_gradient_norm
        ratio = outcome.gradient_norm / before if before else 1.0
        error = self.value if math.isnan(predicted) else model_error(outcome.actual, predicted)
        wanted = min(LARGEST, GRADIENT_FACTOR * min(ratio, 1.0) ** 2, error)
        least: float = self.value**SAFEGUARD_POWER
        return changed(self, value=max(wanted, least) if least > SAFEGUARD_ABOVE else wanted)

    def restarted(self) -> Forcing:
        """As at the start of a run."""
        return self if self.value is None else Forcing()


def model_error(actual: float, predicted: float) -> float:
    """How far the quadratic model was off, relative to what it predicted."""
    if not predicted > 0:
        return LARGEST
    return max(abs(actual / predicted - 1), SMALLEST)
