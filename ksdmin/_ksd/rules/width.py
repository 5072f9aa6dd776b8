"""Width: how many Krylov vectors an iteration may have while its curvature is of a sample.

Where the model of B predicted the reduction on A and the space was full, it is the space that
limits the step: it widens. Where the model was off, a wider space would fit the few samples still
better, not the whole set: it narrows, as far as the products cost two passes over all samples.
Where a model is linear in its parameters, a larger B therefore has fewer vectors: 20 sets of losses
take 4% fewer passes by that. Of 8 badly scaled regressions K fixed at 20 takes twice the passes;
three nets have 6% (+- 5%) more excess loss (examples/benchmarks/ablation.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed

# 1.1 takes 6% (+- 3%) more passes on regressions; 1.5 6% fewer, but nets have 8% (+- 6%) more
# excess loss.
FACTOR = 1.2
# Actual / predicted reduction. 0.95 and 0.9 take 17% (+- 6%) more passes on regressions; 0.7 and
# 0.6 change none of them, and the excess loss of nets by -6% (+- 4%).
WIDEN_ABOVE, NARROW_BELOW = 0.85, 0.75


@dataclass(frozen=True)
class Width:
    """K of the next iteration, and the interval that it stays in."""

    value: int
    narrowest: int
    widest: int

    @classmethod
    def off(cls, K: int) -> Width:
        """The paper: K is fixed."""
        return cls(K, K, K)

    def after(self, outcome: Outcome, *, limited_by_damping: bool = False) -> Width:
        """K for the next sample, unless it was the damping that limited the step."""
        actual, predicted = outcome.actual, outcome.model_reduction_on_new_A
        if limited_by_damping:
            return self
        if not actual >= NARROW_BELOW * predicted:
            return changed(self, value=max(self.narrowest, round(self.value / FACTOR)))
        if outcome.space_is_full and actual > WIDEN_ABOVE * predicted:
            return changed(self, value=min(self.widest, round(self.value * FACTOR)))
        return self

    def on_larger_sets(self, before: int, now: int) -> Width:
        """K after B has grown from `before` samples to `now`; a K that is fixed stays."""
        if self.narrowest == self.widest:
            return self
        narrowest = max(1, self.narrowest * before // now)
        return changed(self, narrowest=narrowest, value=max(narrowest, self.value * before // now))
