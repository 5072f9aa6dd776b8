"""Damping: how far a step on samples may go.

The damping is the weight of |d|^2 / 2, which the search minimises along with the loss. KSD needs
it early in the training of a net. There the search would take very long steps that gain next to
nothing, and end in regions that it never leaves: without damping three small nets have 32% more
excess loss after 60 passes (standard error 28%) and 94% more after 200 (50%). The first step is at
most a share of the start point. Then the damping follows Levenberg and Marquardt. But as long as
every step was good in their sense it falls faster, because the first step may have been far too
short. A model that is linear in its parameters needs no damping, and about plain functions nothing
is known. The basis is built without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed
from ksdmin._run.levenberg_marquardt import GOOD, adjusted

# How these numbers were measured: examples/benchmarks/ablation.py.
# The first step is at most this share of |x0|. From 0.001 to 0.1 the excess loss of three nets
# after 200 passes changes by +9% to -16%, which may be chance.
FIRST_REACH = 0.01
# A cost of the damping below this share of the predicted reduction does not count. In the initial
# phase the damping falls by this factor. With a quarter, ten nets have 28% [11%, 52%] more excess
# loss after 20 passes; without that phase three times as much.
NEGLIGIBLE = 0.1


@dataclass(frozen=True)
class SearchDamping:
    """The weight of |d|^2 / 2 in the next search."""

    value: float  # the weight
    initial_phase: bool = True  # whether every step so far was a good one

    @classmethod
    def first(cls, gradient_norm: float, x_norm: float) -> SearchDamping:
        """The damping that bounds the first step, |g| / damping, by a share of |x|, in 2-norms."""
        return cls(gradient_norm / (FIRST_REACH * x_norm) if x_norm else 0.0)

    def after(self, outcome: Outcome) -> SearchDamping:
        """The damping of the next step; the same if values could not be compared."""
        if not outcome.compared:
            return changed(self, initial_phase=False)
        actual, predicted = outcome.actual, outcome.model_reduction_on_new_A
        if self.initial_phase and predicted > 0 and actual > GOOD * predicted:
            return changed(self, value=NEGLIGIBLE * self.value)
        return SearchDamping(adjusted(self.value, actual, predicted), initial_phase=False)


def limits(damping: float, outcome: Outcome) -> bool:
    """Whether the damping noticeably kept the step short."""
    cost = damping * (outcome.step_norm * outcome.step_norm) / 2
    return cost > NEGLIGIBLE * max(outcome.trial.predicted, 0.0)
