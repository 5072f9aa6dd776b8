"""The dampings: of the search on samples, and of Gauss-Newton steps.

Damping: how far a step may go that rests on samples.

It is the weight of |d|^2 / 2 beside the loss that the search minimises. KSD needs it early in the
training of a net, where the search would take very long steps for next to nothing, and end in
regions that it never leaves: without it three small nets have 32% more excess loss after 60 passes
(standard error 28%) and 94% more after 200 (50%). The first step is at most a share of the start
point. Then the damping follows Levenberg and Marquardt; but as long as every step was good in their
sense it falls faster, since that first step may have been far too short. A model that is linear in
its parameters needs none, and of plain functions nothing is known. The basis is built without it.

The damping of Gauss-Newton steps (``_ksd/steps/gauss_newton.py``).

It follows what a step gained of what the linear model predicted, as Nielsen has it (1999): gently
down after good steps, ever faster up after bad ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.line_search import EPS
from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._problem.arrays import Array
from ksdmin._problem.values import changed
from ksdmin._run.fit_tests import Held
from ksdmin._run.levenberg_marquardt import GOOD, adjusted

# How these numbers were measured: examples/benchmarks/ablation.py.
# The first step goes as far as this share of |x0|. From 0.001 to 0.1 the excess loss of three nets
# after 200 passes changes by +9% to -16%: not resolved from chance.
FIRST_REACH = 0.01
# Of the predicted reduction: a cost of the damping that does not count. In the initial phase the
# damping falls by this factor. By a quarter, ten nets have 28% [11%, 52%] more excess loss after 20
# passes; without that phase three times as much.
NEGLIGIBLE = 0.1


@dataclass(frozen=True)
class Damping:
    """The weight of |d|^2 / 2 in the next search.

    Attributes
    ----------
    value : float
        The weight.
    initial_phase : bool
        Whether every step so far was a good one.
    """

    value: float
    initial_phase: bool = True

    @classmethod
    def off(cls) -> Damping:
        """No damping, now or later."""
        return cls(0.0, initial_phase=False)

    @classmethod
    def first(cls, gradient_norm: float, x_norm: float) -> Damping:
        """What bounds the first step, |g| / damping, by a share of |x|; Euclidean norms."""
        return cls(gradient_norm / (FIRST_REACH * x_norm) if x_norm else 0.0)

    def after(self, outcome: Outcome) -> Damping:
        """The damping of the next step: where values could not be compared, the same."""
        if not outcome.compared:
            return changed(self, initial_phase=False)
        actual, predicted = outcome.actual, outcome.model_reduction_on_new_A
        if self.initial_phase and model_is_good(actual, predicted):
            return changed(self, value=NEGLIGIBLE * self.value)
        return Damping(adjusted(self.value, actual, predicted), initial_phase=False)


def limits(damping: float, outcome: Outcome) -> bool:
    """Whether a damping kept the step short, noticeably."""
    cost = damping * (outcome.step_norm * outcome.step_norm) / 2
    return cost > NEGLIGIBLE * max(outcome.predicted_on_C, 0.0)


def model_is_good(actual: float, predicted: float) -> bool:
    """Whether the reduction is that of the model, as far as Levenberg and Marquardt ask for."""
    return predicted > 0 and actual > GOOD * predicted


# A good step lowers the damping by this factor at most.
LARGEST_CUT = 1 / 3


@dataclass(frozen=True)
class Met:
    """A test of convergence that holds at a point.

    Attributes
    ----------
    x : array
        The point.
    held : Held
        The test.
    """

    x: Array
    held: Held


@dataclass(frozen=True)
class DampedStep:
    """What the last Gauss-Newton step has left to the next one.

    Attributes
    ----------
    last : NextDamping or None
        What the last step has left; None before the first.
    least : float
        The least damping that a step has left.
    falls : bool
        Whether the last step has left a lower one than it began with: it was kept short, and the
        next ones will show more of what this kind of step can do.
    allowed : bool
        Whether there is such a step at all.
    met : Met or None
        The test of convergence that held where the last step began, if any did.
    """

    last: NextDamping | None = None
    least: float = math.inf
    falls: bool = True
    allowed: bool = True
    met: Met | None = None

    @classmethod
    def off(cls) -> DampedStep:
        """The paper: always a Krylov space."""
        return cls(allowed=False)

    @property
    def rank(self) -> int | None:
        """Of the last factor; None before the first."""
        return None if self.last is None else self.last.rank

    @property
    def whole_below(self) -> float:
        """Below which damping a factor is not of low rank, as far as is known."""
        return 0.0 if self.last is None else self.last.whole_below

    def start(self, scale: float) -> float:
        """The damping to begin with, for a curvature whose mean eigenvalue is `scale`.

        At first that eigenvalue (where residuals saturate, a thousandth of it led two runs of three
        into a trap), and never less than its rounding.
        """
        return scale if self.last is None else max(self.last.value, EPS * scale)

    def in_finer_arithmetic(self) -> DampedStep:
        """The same with the least damping: what has raised it since then may be rounding."""
        if self.last is None:
            return self
        return changed(self, last=changed(self.last, value=self.least))

    def after(self, outcome: Outcome) -> DampedStep:
        """The rule after a step."""
        if outcome.damping is None:
            return self
        return changed(
            self,
            last=outcome.damping,
            falls=self.last is None or outcome.damping.value < self.last.value,
            least=min(self.least, outcome.damping.value),
        )


def lowered(damping: float, gain: float) -> float:
    """The damping after a step that gained this share of what was predicted."""
    gain = min(max(gain, 0.0), 1.0)
    return damping * max(LARGEST_CUT, 1 - (2 * gain - 1) ** 3)


def raised(damping: float, growth: float) -> tuple[float, float]:
    """The damping after one whose step failed, and by how much it grows the next time."""
    return damping * growth, 2 * growth
