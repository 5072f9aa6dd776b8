"""Exact space: when a step takes the whole curvature matrix in place of a Krylov space.

It does where the matrix, its factorisation and the step cost less than a Krylov space of as many
vectors as the last one had (``_ksd/cost_model.py``; at first, half of what it may have). The
factorised matrix then serves further steps, which cost no more than a gradient each, as long as the
gradient falls faster, for what they cost, than in the last step with a new matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed


@dataclass(frozen=True)
class ExactSpace:
    """What the last steps show of the choice between a Krylov space and the matrix.

    Attributes
    ----------
    products : int or None
        How many vectors the last Krylov space had; None: there was none yet.
    fall : float
        By which factor, as a logarithm, the last step with a new matrix reduced the gradient.
    reused_fall : float
        The same of the last step, if it rested on an older matrix; infinite before the first.
    allowed : bool
        Whether the matrix may be taken at all.
    """

    products: int | None = None
    fall: float = math.inf
    reused_fall: float = math.inf
    allowed: bool = True

    @classmethod
    def off(cls) -> ExactSpace:
        """The paper: always a Krylov space."""
        return cls(allowed=False)

    def worthwhile(self, costs: Costs, K: int) -> bool:
        """Whether the matrix costs less than a Krylov space, which has K vectors at most."""
        if not self.allowed:
            return False
        products = K / 2 if self.products is None else self.products
        return costs.exact <= costs.krylov(products)

    def reusable(self, costs: Costs) -> bool:
        """Whether the next step may rest on the last matrix."""
        share = costs.gradient / (costs.gradient + costs.exact)
        return self.allowed and self.reused_fall > share * self.fall

    def after(self, outcome: Outcome) -> ExactSpace:
        """The rule after a step."""
        if not self.allowed:
            return self
        if outcome.measured and not outcome.exact:
            return changed(self, products=outcome.dim)
        fall = logarithmic_fall(outcome)
        if outcome.exact:
            return changed(self, fall=max(fall, 0.0), reused_fall=math.inf)
        return changed(self, reused_fall=fall)


def logarithmic_fall(outcome: Outcome) -> float:
    """log(|g_before| / |g_after|); negative where the gradient has grown or no step was taken."""
    before, after = outcome.previous_gradient_norm, outcome.gradient_norm
    if not (outcome.accepted and before > 0 and after <= before):
        return -math.inf
    return math.log(before / after) if after > 0 else math.inf
