"""What the last steps made of the whole curvature leave to the next one.

Gauss newton: the damping of Gauss-Newton steps (``_ksd/steps/gauss_newton.py``).

It follows the ratio of the gain to the prediction of the linear model, as in Nielsen (1999): it
falls gently after good steps, and rises faster and faster after bad ones.

Newton: when a step takes the whole curvature matrix instead of a Krylov space.

It does if the matrix and its factorisation cost less than the Krylov spaces that they replace
(``_ksd/cost_model.py``). Further steps, which cost a gradient each, use the same factor, as long
as the gradient falls faster for its cost in the last of them than in the last step with a new
matrix. A sum of losses without a matrix makes one of products; when, the contest decides. 28 sums
that nothing was tuned on, of 5 to 300 unknowns, take 0.65 of the passes with it (0.33 where scales
spread over six decades), and none takes more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._ksd.rules.contest import FIRST_TURN
from ksdmin._ksd.rules.set_sizes import MIN_REDUCTION, doubled
from ksdmin._problem.arrays import Array
from ksdmin._problem.values import changed
from ksdmin._run.fit_tests import Held

# A good step lowers the damping by this factor at most.
LARGEST_CUT = 1 / 3


@dataclass(frozen=True)
class Met:
    """A test of convergence that holds at a point."""

    x: Array  # the point
    held: Held  # the test


@dataclass(frozen=True)
class GaussNewtonDamping:
    """What the last Gauss-Newton step has left to the next one."""

    last: NextDamping | None = None  # what the last step has left; None before the first
    least: float = math.inf  # the least damping that a step has left
    # Whether the last step has left a lower one than it began with: it was kept short, and the next
    # ones will show more of what this kind of step can do.
    falls: bool = True
    allowed: bool = True  # whether there is such a step at all
    # The test of convergence that held where the last step began, if any did.
    met: Met | None = None

    @property
    def rank(self) -> int | None:
        """Of the last factor; None before the first."""
        return None if self.last is None else self.last.rank

    @property
    def whole_below(self) -> float:
        """The damping below which a factor of low rank does not pay, as far as is known."""
        return 0.0 if self.last is None else self.last.whole_below

    def start(self, scale: float, least: float) -> float:
        """The damping to begin with, for a curvature whose mean eigenvalue is `scale`.

        In the first step that eigenvalue, and never less than the `least` one that rounding
        leaves. (If residuals saturate, a thousandth of it led two runs of three into a bad local
        minimum.)
        """
        return scale if self.last is None else max(self.last.value, least)

    def in_finer_arithmetic(self) -> GaussNewtonDamping:
        """The same with the least damping so far: what has raised it since may be rounding."""
        if self.last is None:
            return self
        return changed(self, last=changed(self.last, value=self.least))

    def after(self, outcome: Outcome) -> GaussNewtonDamping:
        """The rule after a step."""
        left = outcome.trial.damping
        if left is None:
            return self
        falls = self.last is None or left.value < self.last.value
        return changed(self, last=left, falls=falls, least=min(self.least, left.value))


def lowered(damping: float, gain: float) -> float:
    """The damping after a step that gained this share of the prediction."""
    gain = min(max(gain, 0.0), 1.0)
    return damping * max(LARGEST_CUT, 1 - (2 * gain - 1) ** 3)


@dataclass(frozen=True)
class NewtonChoice:
    """What the last steps show of the choice between a Krylov space and the matrix."""

    # By which factor, as a logarithm, the last step with a new matrix reduced the gradient.
    fall: float = math.inf
    # The same of the last step since then, which rested on that matrix; infinite before it.
    reused_fall: float = math.inf
    # Whether the last step with a new matrix gained much less than the matrix predicted: the next
    # one has damped directions, too.
    damped: bool = False
    # Whether that step led nowhere, or the matrices of a whole turn missed: the next step has a
    # Krylov space.
    failed: bool = False
    # How many new matrices in a row predicted less than half or more than twice the gain. `hess`
    # may be a rough approximation, or wrong: then the quasi-Newton model learns more.
    misses: int = 0
    allowed: bool = True  # whether the matrix may be taken at all
    samples: int | None = None  # of the last matrix, or the first, if it is made of products

    def next_samples(self, N: int) -> int | None:
        """How many of N samples the next matrix has, if it is made of products; None if it is not.

        Twice as many as the last one, if the step from that gained much less than it predicted.
        """
        if self.samples is None or not self.damped:
            return self.samples
        return doubled(self.samples, N)

    def worthwhile(self, costs: Costs, K: int, *, reused: bool) -> bool:
        """Whether the matrix is less work than Krylov spaces of at most K vectors."""
        instead = costs.replaced(K) if reused else costs.krylov(K)
        return self.allowed and not self.failed and costs.whole_curvature <= instead

    def reusable(self, costs: Costs) -> bool:
        """Whether the next step may use the last matrix."""
        share = costs.reused / (costs.reused + costs.whole_curvature)
        return self.allowed and not self.failed and self.reused_fall > share * self.fall

    def after(self, outcome: Outcome) -> NewtonChoice:
        """The rule after a step."""
        if outcome.new_curvature and not outcome.whole_curvature:
            return changed(self, failed=False) if self.failed else self
        if not self.allowed:
            return self
        fall = logarithmic_fall(outcome)
        if outcome.whole_curvature:
            damped = not outcome.actual >= MIN_REDUCTION * outcome.trial.newton_reduction
            misses = self.misses + 1 if self._missed(outcome, damped) else 0
            failed = not (outcome.accepted and outcome.moved) or misses >= FIRST_TURN
            known = changed(self, fall=max(fall, 0.0), reused_fall=math.inf, misses=misses)
            return changed(known, damped=damped, failed=failed)
        return changed(self, reused_fall=fall)

    def _missed(self, outcome: Outcome, damped: bool) -> bool:
        """Whether the gain was far from what a matrix from `hess` predicted."""
        if outcome.trial.is_gauss_newton or self.samples is not None:
            return False
        return damped or outcome.trial.newton_reduction < MIN_REDUCTION * outcome.actual


def logarithmic_fall(outcome: Outcome) -> float:
    """log(|g_before| / |g_after|); minus infinity where no step was taken."""
    before, after = outcome.previous_gradient_norm, outcome.gradient_norm
    if not (outcome.accepted and outcome.moved and before > 0):
        return -math.inf
    return math.log(before) - math.log(after) if after > 0 else math.inf
