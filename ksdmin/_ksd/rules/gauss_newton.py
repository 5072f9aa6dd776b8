"""Gauss newton: the damping of Gauss-Newton steps (``_ksd/steps/gauss_newton.py``).

It follows the ratio of the gain to the prediction of the linear model, as in Nielsen (1999): it
falls gently after good steps, and rises faster and faster after bad ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.line_search import EPS
from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._problem.arrays import Array
from ksdmin._problem.values import changed
from ksdmin._run.fit_tests import Held

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
class GaussNewtonDamping:
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
    def off(cls) -> GaussNewtonDamping:
        """The paper: always a Krylov space."""
        return cls(allowed=False)

    @property
    def rank(self) -> int | None:
        """Of the last factor; None before the first."""
        return None if self.last is None else self.last.rank

    @property
    def whole_below(self) -> float:
        """The damping below which a factor of low rank does not pay, as far as is known."""
        return 0.0 if self.last is None else self.last.whole_below

    def start(self, scale: float) -> float:
        """The damping to begin with, for a curvature whose mean eigenvalue is `scale`.

        In the first step that eigenvalue, and never less than its rounding. (If residuals
        saturate, a thousandth of it led two runs of three into a bad local minimum.)
        """
        return scale if self.last is None else max(self.last.value, EPS * scale)

    def in_finer_arithmetic(self) -> GaussNewtonDamping:
        """The same with the least damping so far: what has raised it since may be rounding."""
        if self.last is None:
            return self
        return changed(self, last=changed(self.last, value=self.least))

    def after(self, outcome: Outcome) -> GaussNewtonDamping:
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
    """The damping after a step that gained this share of the prediction."""
    gain = min(max(gain, 0.0), 1.0)
    return damping * max(LARGEST_CUT, 1 - (2 * gain - 1) ** 3)


def raised(damping: float, growth: float) -> tuple[float, float]:
    """The damping after a failed step, and the factor for the next failure."""
    return damping * growth, 2 * growth
