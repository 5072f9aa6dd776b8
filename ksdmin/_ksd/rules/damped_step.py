"""Damped step: its damping, and when a Krylov space does more.

A sum of squares whose Jacobian is affordable takes damped Gauss-Newton steps
(``_ksd/damped_step.py``). The damping follows what a step gained of what the linear model
predicted, as Nielsen has it (1999): gently down after good steps, ever faster up after bad ones.

Whichever of the two, such steps or those with Krylov spaces, has lately lowered the loss by the
larger factor for what it cost, goes on. Lately: every step counts half as much as the next one.
(By the last step alone, a single bad one kept either kind away for good.) Where there has been no
Krylov space yet, one is tried on a plateau, where several steps lower the loss by next to nothing.
What a step costs the cost model says, never a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.line_search import EPS
from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._problem.values import changed

# A good step lowers the damping by this factor at most.
LARGEST_CUT = 1 / 3
# On a plateau so many steps in a row lower the loss by less than this share each. Not settled: one
# slow step is too few (many a net has slow first steps, which these steps overcome).
SLOW_STEPS, PLATEAU = 5, 0.01


@dataclass(frozen=True)
class Lately:
    """What the last steps of one kind have done: each counts half as much as the next one.

    Attributes
    ----------
    fall : float
        By which factor, as a logarithm, they have lowered the loss.
    work : float
        What they have cost.
    """

    fall: float = 0.0
    work: float = 0.0

    @property
    def rate(self) -> float:
        """The fall for each unit of work; infinite before the first step, as a reason to try it."""
        return self.fall / self.work if self.work else math.inf

    def then(self, fall: float, work: float) -> Lately:
        """With one more step."""
        return Lately(self.fall / 2 + fall, self.work / 2 + work)


@dataclass(frozen=True)
class DampedStep:
    """What the last steps of either kind have left and gained.

    Attributes
    ----------
    last : NextDamping or None
        What the last step has left; None before the first.
    least : float
        The least damping that a step has left.
    falls : bool
        Whether the last step has left a lower one than it began with: it was kept short, and the
        next ones will show more of what this kind of step can do.
    damped, krylov : Lately
        Steps of this kind, and those with Krylov spaces.
    slow : int
        How many steps of this kind in a row have hardly lowered the loss.
    allowed : bool
        Whether there is such a step at all.
    """

    last: NextDamping | None = None
    least: float = math.inf
    falls: bool = True
    damped: Lately = Lately()
    krylov: Lately = Lately()
    slow: int = 0
    allowed: bool = True

    @classmethod
    def off(cls) -> DampedStep:
        """The paper: always a Krylov space."""
        return cls(allowed=False)

    def worthwhile(self, costs: Costs, K: int) -> bool:
        """Whether it is less work than a Krylov space of K vectors, and gains as much."""
        if not self.allowed or costs.exact > costs.krylov(min(K, costs.n)):
            return False
        if not self.krylov.work:
            return self.slow < SLOW_STEPS
        return self.damped.rate >= self.krylov.rate

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
        """The same with the least damping, and to be tried again.

        What has raised the damping since then, and made steps gain little, may be rounding.
        """
        if self.last is None:
            return self
        return changed(self, last=changed(self.last, value=self.least), damped=Lately(), slow=0)

    def after(self, outcome: Outcome) -> DampedStep:
        """The rule after a step."""
        if not self.allowed or not outcome.measured or not outcome.work > 0:
            return self
        fall = logarithmic_fall(outcome)
        if outcome.damping is None:
            return changed(self, krylov=self.krylov.then(fall, outcome.work))
        return changed(
            self,
            last=outcome.damping,
            falls=self.last is None or outcome.damping.value < self.last.value,
            least=min(self.least, outcome.damping.value),
            damped=self.damped.then(fall, outcome.work),
            slow=self.slow + 1 if fall < PLATEAU else 0,
        )


def lowered(damping: float, gain: float) -> float:
    """The damping after a step that gained this share of what was predicted."""
    gain = min(max(gain, 0.0), 1.0)
    return damping * max(LARGEST_CUT, 1 - (2 * gain - 1) ** 3)


def raised(damping: float, growth: float) -> tuple[float, float]:
    """The damping after one whose step failed, and by how much it grows the next time."""
    return damping * growth, 2 * growth


def logarithmic_fall(outcome: Outcome) -> float:
    """log(value before / value after), for a loss that is not negative; 0 for no step."""
    if not (outcome.accepted and outcome.moved and outcome.actual > 0):
        return 0.0
    return math.log1p(outcome.actual / outcome.value) if outcome.value > 0 else math.inf
