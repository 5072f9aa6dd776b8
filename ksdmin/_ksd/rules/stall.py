"""Stall: when a run has stopped making progress.

Progress is a reduction that rounding cannot hide, or a gradient smaller than all before it. A run
that makes none for some iterations ends (with status 2), or its sets grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.line_search import PATIENCE
from ksdmin._ksd.outcome import Outcome
from ksdmin._problem.values import changed


@dataclass(frozen=True)
class Stall:
    """Iterations in a row without progress.

    Attributes
    ----------
    least_gradient : float
        The smallest gradient norm so far.
    count : int
        Iterations without progress.
    patience : float
        How many are too many.
    """

    least_gradient: float
    count: int = 0
    patience: float = PATIENCE

    @classmethod
    def off(cls, gradient_norm: float) -> Stall:
        """A run never counts as stalled."""
        return cls(gradient_norm, patience=math.inf)

    @property
    def stalled(self) -> bool:
        """Whether it is time to give up, or to change something."""
        return self.count >= self.patience

    def after(self, outcome: Outcome) -> Stall:
        """The count after a step; one without products does not count where these may follow."""
        counted = outcome.measured or outcome.without_products
        if not outcome.accepted:
            return changed(self, count=self.count + counted)
        norm = outcome.gradient_norm
        resolved = outcome.actual > max(outcome.noise, outcome.gradient_noise)
        progress = resolved or norm < self.least_gradient
        # Where the search cannot move, the run has stalled at once; unless another kind is left.
        ended = outcome.last_resort and not outcome.moved
        more = counted * (PATIENCE if ended else 1)
        count = 0 if progress else self.count + more
        return changed(self, count=count, least_gradient=min(norm, self.least_gradient))

    def cleared(self) -> Stall:
        """After a change that may bring progress: larger sets."""
        return changed(self, count=0)

    def restarted(self, gradient_norm: float) -> Stall:
        """For another function: of other samples, or in finer arithmetic."""
        return changed(self, count=0, least_gradient=gradient_norm)
