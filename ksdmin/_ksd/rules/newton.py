"""Newton: when a step takes the whole curvature matrix instead of a Krylov space.

It does if the matrix and its factorisation cost less than the Krylov spaces that they replace
(``_ksd/cost_model.py``). Further steps, which cost a gradient each, use the same factor, as long
as the gradient falls faster for its cost in the last of them than in the last step with a new
matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.set_sizes import MIN_REDUCTION
from ksdmin._problem.values import changed


@dataclass(frozen=True)
class NewtonChoice:
    """What the last steps show of the choice between a Krylov space and the matrix.

    Attributes
    ----------
    fall : float
        By which factor, as a logarithm, the last step with a new matrix reduced the gradient.
    reused_fall : float
        The same of the last step since then, which rested on that matrix; infinite before it.
    damped : bool
        Whether the last step with a new matrix gained much less than the matrix predicted: the next
        one has damped directions, too.
    failed : bool
        Whether that step led nowhere: the next one has a Krylov space.
    allowed : bool
        Whether the matrix may be taken at all.
    """

    fall: float = math.inf
    reused_fall: float = math.inf
    damped: bool = False
    failed: bool = False
    allowed: bool = True

    @classmethod
    def off(cls) -> NewtonChoice:
        """The paper: always a Krylov space."""
        return cls(allowed=False)

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
            damped = not outcome.actual >= MIN_REDUCTION * outcome.newton_reduction
            failed = not (outcome.accepted and outcome.moved)
            known = changed(self, fall=max(fall, 0.0), reused_fall=math.inf)
            return changed(known, damped=damped, failed=failed)
        return changed(self, reused_fall=fall)


def logarithmic_fall(outcome: Outcome) -> float:
    """log(|g_before| / |g_after|); minus infinity where no step was taken."""
    before, after = outcome.previous_gradient_norm, outcome.gradient_norm
    if not (outcome.accepted and outcome.moved and before > 0):
        return -math.inf
    return math.log(before / after) if after > 0 else math.inf
