"""How large the Krylov space is: how accurate its Newton step must be, and how wide it may be.

Forcing: how accurately the Newton step in the Krylov space must solve H d = -g.

The space grows until the relative residual is at most the forcing term (an inexact Newton method).
The term follows Eisenstat and Walker (1996), but uses values: how far the quadratic model was off
in the last step, and how fast the gradient falls. Without it (always K vectors) 74 classic problems
take 69% more work. The intervals below are measured by examples/benchmarks/ablation.py; on
regressions other draws alone change the passes by 4%.

Width: how many vectors a Krylov space may have, by what the run has shown so far.

On samples, if the model is linear: more vectors than cost two passes, as far as the samples of C
show that they pay (``_ksd/steps/krylov.py``). Without wide spaces badly scaled regressions
(`decades`, `many` of examples/benchmarks/regression.py) take 1.6 to 4.8 times the passes; 20 sets
of losses that nothing was tuned on take 10% more.

On the whole set: as many as the run has had gradients and products before. The gain of the last
space says little about the cost of the next one; with indefinite curvature that may be K products.
With this limit it is at most the cost of the run so far. Factorisations of a matrix with missing
entries, which had a space of 100 vectors after 17 gradients, take a third of the passes to 1% of
what there is to gain; 160 smooth problems, and 72 quadratic and nearly quadratic ones, take as much
work as without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.cost_model import MATRIX_IN_GRADIENTS
from ksdmin._ksd.krylov import Growth
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed
from ksdmin._result import Record

# Nocedal and Wright, eq. 7.3. With 0.75 sums over many samples take 6% [1%, 13%] more passes; 0.25
# makes no difference.
LARGEST = 0.5
# Eisenstat and Walker's safeguard: in one step the forcing term falls at most to this power of
# itself. A short step that went as predicted says little about the next, longer one. With 2.2 sums
# of losses take 9% [2%, 18%] more passes; 1.3 makes no difference.
SAFEGUARD_POWER = (1 + 5**0.5) / 2


@dataclass(frozen=True)
class Forcing:
    """The relative residual that the next Newton step should have; None: the space grows to K."""

    value: float | None = LARGEST

    def satisfied(self, growth: Growth) -> bool:
        """Whether the space has grown enough."""
        return self.value is not None and growth.residual() <= self.value

    def after(self, outcome: Outcome) -> Forcing:
        """The forcing term of the next step; the same after a refused step."""
        if self.value is None or not outcome.accepted:
            return self
        predicted = outcome.model_reduction_on_new_A if outcome.new_curvature else math.nan
        before = outcome.previous_gradient_norm
        ratio = outcome.gradient_norm / before if before else 1.0
        error = self.value if math.isnan(predicted) else model_error(outcome.actual, predicted)
        wanted = min(LARGEST, ratio * ratio, error)
        value = max(wanted, self.value**SAFEGUARD_POWER)
        return self if value == self.value else changed(self, value=value)

    def restarted(self) -> Forcing:
        """The forcing term as at the start of a run."""
        return self if self.value is None else Forcing()


def model_error(actual: float, predicted: float) -> float:
    """How far the quadratic model was off, relative to what it predicted."""
    if not predicted > 0:
        return LARGEST
    return abs(actual / predicted - 1)


# Half of what curvature may cost in the first step; the other half is for the search.
FIRST_PRODUCTS = MATRIX_IN_GRADIENTS // 2


@dataclass(frozen=True)
class Width:
    """How wide the next space may be."""

    # Whether a space on samples may have more vectors than two passes pay for, and one on
    # everything no more than the run has paid for
    wide: bool = True

    def most(self, record: Record, K: int) -> int:
        """How many vectors a space on everything may have, where the run stands at `record`."""
        return min(K, max(FIRST_PRODUCTS, record.njev + record.nhev)) if self.wide else K
