"""Width: how many vectors a Krylov space may have, by what the run has shown so far.

On samples: more than two passes pay for, where the model is linear, as far as the samples of C show
that it pays (``_ksd/steps/widening.py``). Without wide spaces badly scaled regressions (`decades`,
`many` of examples/benchmarks/regression.py) take 1.6 to 4.8 times the passes; 20 sets of losses
that nothing was tuned on take 10% more.

On everything, where products are differences of gradients: each costs as much as a step of the
quasi-Newton model. Nothing is known of the function at first, so the first space has few vectors,
and each step with products that is taken allows twice as many in the next. Without this limit small
nets have twice the loss after 120 gradients, of which up to 90 go into the first step; classic
problems take as much work with it as without.
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.cost_model import MATRIX_IN_GRADIENTS
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed

# Half of what curvature may cost before a run knows anything: the other half is for the search.
FIRST_PRODUCTS = MATRIX_IN_GRADIENTS // 2


@dataclass(frozen=True)
class Width:
    """How wide the next space may be.

    Attributes
    ----------
    wide : bool
        Whether a space on samples may have more vectors than two passes pay for.
    most : int or None
        How many vectors the next space of the whole function may have; None: as many as K.
    """

    wide: bool = True
    most: int | None = None

    @classmethod
    def off(cls) -> Width:
        """The paper: K is fixed."""
        return cls(wide=False)

    @classmethod
    def of_differences(cls) -> Width:
        """Where products are differences of gradients."""
        return cls(most=FIRST_PRODUCTS)

    def after(self, outcome: Outcome) -> Width:
        """The rule after a step; one without products has no space."""
        if self.most is None or not (outcome.measured and outcome.accepted):
            return self
        return changed(self, most=2 * self.most)
