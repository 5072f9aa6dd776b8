"""Which steps gain more for their work: those with products, or the model's own."""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._result import Record

WORTH = 0.03  # of what a step with products gains for its work, a step of the model should gain
CHANGE = 10  # that share falls and rises by so much
LEAST, MOST = 1e-3, 0.3  # and so far


@dataclass(frozen=True)
class Pace:
    """What the last step with products gained, and what is asked of the model's steps after it.

    Attributes
    ----------
    end : Record
        Where that step ended.
    gain : float
        What it lowered the value by, for a pass.
    worth : float
        The share of it that a step of the model has to gain.
    """

    end: Record
    gain: float = float("nan")
    worth: float = WORTH

    def paid(self, start: Record, end: Record) -> bool:
        """Whether a step of the model has been worth its work."""
        return gain(start, end) >= self.worth * self.gain

    def after(self, start: Record, end: Record) -> Pace:
        """The pace after one more step with products.

        The model's steps before it come between two with products. Gains shrink on the way to
        the minimum, in proportion to what is left: theirs are compared with the geometric mean.
        """
        found, worth = gain(start, end), self.worth
        if start.iteration > self.end.iteration:
            better = gain(self.end, start) ** 2 >= found * self.gain
            worth = max(worth / CHANGE, LEAST) if better else min(worth * CHANGE, MOST)
        return Pace(end, found, worth)


def gain(start: Record, end: Record) -> float:
    """What has been gained for a pass between two records."""
    return (start.value - end.value) / max(end.passes - start.passes, 1.0)
