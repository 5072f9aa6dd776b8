"""When a run makes no progress, and when rounding begins to hide its progress.

Stall: when a run has stopped making progress.

Progress is a reduction that rounding cannot hide, or the smallest gradient so far. A run without
progress for some iterations ends (with status 2), or its sets grow.

Finer arithmetic: when a run asks its problem for less rounding.

A problem may offer the same values with less rounding: float32 instead of TF32, and then float64
(the whole run moves there, see `start.py: moved`). A run turns to it when rounding begins to hide
the gain of its steps. On MNIST's auto-encoder without L2 the error after eight minutes is then
0.76 instead of 1.23.

A gradient by 2-point differences offers 3-point ones, which cost twice as much. A run turns to
them when the error of the former begins to hide the gradient, or its slope along a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.line_search import MARGIN, PATIENCE
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed


@dataclass(frozen=True)
class Stall:
    """Iterations in a row without progress."""

    least_gradient: float  # the smallest gradient norm so far
    count: int = 0  # iterations without progress
    patience: float = PATIENCE  # how many are too many

    @property
    def stalled(self) -> bool:
        """Whether it is time to give up, or to change something."""
        return self.count >= self.patience

    def after(self, outcome: Outcome) -> Stall:
        """The count after a step; without products it counts only if none with them may follow."""
        counted = outcome.new_curvature or outcome.without_products
        if not outcome.accepted:
            return changed(self, count=self.count + counted)
        norm = outcome.gradient_norm
        resolved = outcome.actual > max(outcome.noise, outcome.gradient_noise)
        progress = resolved or norm < self.least_gradient
        # If the search cannot move, the run has stalled at once, unless another kind is left.
        ended = outcome.last_resort and not outcome.moved
        more = counted * (PATIENCE if ended else 1)
        count = 0 if progress else self.count + more
        return changed(self, count=count, least_gradient=min(norm, self.least_gradient))

    def restarted(self, gradient_norm: float) -> Stall:
        """After a change of the function: other samples, or finer arithmetic."""
        return changed(self, count=0, least_gradient=gradient_norm)


@dataclass(frozen=True)
class FinerArithmetic:
    """Whether it is time to ask for it."""

    due: bool = False  # whether the last step showed that
    allowed: bool = True  # whether the run may ask at all

    def after(
        self,
        outcome: Outcome,
        *,
        short_on_purpose: bool = False,
        stalled: bool = False,
        gtol: float = 0.0,
    ) -> FinerArithmetic:
        """Due if rounding hides the gain of a step, or the gradient; and before a run gives up.

        A step that damping kept `short_on_purpose` gains little, but shows nothing of this.
        """
        if outcome.gradient_error:
            hidden = outcome.trial.slope_is_hidden or gradient_hidden(outcome, gtol)
        else:
            # With a margin: near the rounding itself a step is taken or refused by chance.
            hidden = outcome.trial.predicted <= MARGIN * outcome.value_noise
        due = self.allowed and ((hidden and not short_on_purpose) or stalled)
        return self if due == self.due else changed(self, due=due)


def gradient_hidden(outcome: Outcome, gtol: float) -> bool:
    """Whether the error of differences is large, compared with the gradient and with `gtol`.

    An error below `gtol` decides rightly whether a run has converged. Of 15 likelihoods (sums, 3 to
    30 unknowns) 11 ended as failures without this rule. 3-point steps are longer, which is worse
    near a pole: at three times the error a function with a logarithm failed.
    """
    norm = outcome.gradient_norm
    norm = outcome.previous_gradient_norm if math.isnan(norm) else norm
    return outcome.gradient_error >= max(norm, gtol)
