"""Trust: when a step may rest on the quasi-Newton model alone, without products.

It may after a step with products that gained something, unless the function is quadratic; and then
as long as the gradient falls, or the gain is worth the work. Without such steps 74 classic problems
take 25% (+- 4%) more work (examples/benchmarks/ablation.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.forcing import model_error
from ksdmin._problem.values import changed
from ksdmin._result import Record

WORTH = 0.03  # of what a step with products gains for its work, a step of the model should gain
QUADRATIC = 1e-3  # of the predicted reduction: with less deviation the function is quadratic


@dataclass(frozen=True)
class Trust:
    """Whether the next step may rest on the model, and what such a step has to beat.

    Attributes
    ----------
    end : Record
        Where the last step with products ended.
    gain : float
        What it lowered the value by, per pass.
    trusted : bool
        Whether the next step may rest on the model.
    allowed : bool
        Whether any may.
    """

    end: Record
    gain: float = float("nan")
    trusted: bool = False
    allowed: bool = True

    @classmethod
    def off(cls, record: Record) -> Trust:
        """Every step has products."""
        return cls(record, allowed=False)

    def after(self, outcome: Outcome, start: Record, end: Record, *, same_function: bool) -> Trust:
        """Trust after a step from `start` to `end`.

        `same_function` says that the step was taken and its two values are of the same samples.
        """
        if outcome.measured:
            trust = changed(self, end=end, gain=gain_per_pass(start, end))
            worthwhile = model_error(outcome.actual, outcome.model_reduction) > QUADRATIC
        else:
            trust = self
            falls = end.gradient_norm <= start.gradient_norm
            worthwhile = falls or gain_per_pass(start, end) >= WORTH * self.gain
        resolved = outcome.actual > outcome.noise
        trusted = self.allowed and same_function and resolved and worthwhile
        return trust if trusted == trust.trusted else changed(trust, trusted=trusted)

    def on_samples(self, end: Record, *, paired: bool) -> Trust:
        """After a step on samples; `paired` says that the gradients have taught the model.

        The first step on everything may rest on that.
        """
        return Trust(end, trusted=self.allowed and paired, allowed=self.allowed)

    def withdrawn(self) -> Trust:
        """The next step needs products."""
        return changed(self, trusted=False)


def gain_per_pass(start: Record, end: Record) -> float:
    """What has been gained per pass between two records."""
    return (start.value - end.value) / max(end.passes - start.passes, 1.0)
