"""Trust: when a step may rest on the quasi-Newton model alone, without products.

It may after a step with products that gained something, unless the function is quadratic; and then
as long as the gradient falls, or the gain is worth the work. What "worth" is follows from which
steps gained more for their work so far. Without such steps 74 classic problems take 25% (+- 4%)
more work (examples/benchmarks/ablation.py). From a third to three times their values, each of
the numbers of "worth" changes it by less than 0.5%.
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.forcing import SMALLEST, model_error
from ksdmin._problem.values import changed
from ksdmin._result import Record

WORTH = 0.03  # of what a step with products gains for its work, a step of the model should gain
WORTH_FACTOR = 10  # by which that share falls and rises
MIN_WORTH, MAX_WORTH = 1e-3, 0.3
# As a power of the rounding error: smaller gains are left to products. 0.4 takes 2% more work, 0.8
# 0.5% less.
MIN_RESOLVED_GAIN = 0.6


@dataclass(frozen=True)
class Trust:
    """Whether the next step may rest on the model, and what is asked of such steps.

    Attributes
    ----------
    end : Record
        Where the last step with products ended.
    gain : float
        What it lowered the value by, per pass.
    worth : float
        The share of it that a step of the model has to gain.
    trusted : bool
        Whether the next step may rest on the model.
    allowed : bool
        Whether any may.
    """

    end: Record
    gain: float = float("nan")
    worth: float = WORTH
    trusted: bool = False
    allowed: bool = True

    @classmethod
    def off(cls, record: Record) -> Trust:
        """Every step has products."""
        return cls(record, allowed=False)

    def after(
        self, outcome: Outcome, start: Record, end: Record, *, same_function: bool, noise: float
    ) -> Trust:
        """Trust after a step from `start` to `end`.

        `same_function` says that the step was taken and its two values are of the same samples;
        `noise` is the relative rounding error of a value.
        """
        gain = start.value - end.value
        if outcome.measured:
            trust = self._after_products(start, end)
            worthwhile = model_error(gain, outcome.model_reduction) > SMALLEST  # not quadratic
        else:
            trust = self
            falls = end.gradient_norm <= start.gradient_norm
            worthwhile = falls or self.model_step_is_worthwhile(start, end)
        resolved = gain > noise**MIN_RESOLVED_GAIN * abs(start.value)
        trusted = self.allowed and same_function and resolved and worthwhile
        return changed(trust, trusted=trusted)

    def on_samples(self, end: Record, *, paired: bool) -> Trust:
        """After a step on samples; `paired` says that the gradients have taught the model.

        The first step on everything may rest on that.
        """
        return Trust(end, trusted=self.allowed and paired, allowed=self.allowed)

    def withdrawn(self) -> Trust:
        """The next step needs products."""
        return changed(self, trusted=False)

    def model_step_is_worthwhile(self, start: Record, end: Record) -> bool:
        """Whether a step of the model has gained enough for its work."""
        return gain_per_pass(start, end) >= self.worth * self.gain

    def _after_products(self, start: Record, end: Record) -> Trust:
        """The model's steps before this one come between two with products.

        Gains shrink on the way to the minimum, in proportion to what is left: theirs are compared
        with the geometric mean.
        """
        gain, worth = gain_per_pass(start, end), self.worth
        if start.iteration > self.end.iteration:
            between = gain_per_pass(self.end, start)
            better = between * between >= gain * self.gain
            worth = (
                max(worth / WORTH_FACTOR, MIN_WORTH)
                if better
                else min(worth * WORTH_FACTOR, MAX_WORTH)
            )
        return changed(self, end=end, gain=gain, worth=worth)


def gain_per_pass(start: Record, end: Record) -> float:
    """What has been gained per pass between two records."""
    return (start.value - end.value) / max(end.passes - start.passes, 1.0)
