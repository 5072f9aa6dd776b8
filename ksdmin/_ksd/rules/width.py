"""Width: whether a Krylov space on samples may have more vectors than two passes pay for.

Where the model is linear, it may, as far as the samples of C show that it pays
(``_ksd/widening.py``). What neither B nor C has a sample of, such as a rare word, they cannot show.
So a step in a wide space that does much less than predicted on A says that the space was too wide,
not that the sets are too small: until they grow, the spaces stay narrow. Without wide spaces badly
scaled regressions (`decades`, `many` of examples/benchmarks/regression.py) take 1.6 to 4.8 times
the passes; 20 sets of losses that nothing was tuned on take 10% more.
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.set_sizes import falls_short
from ksdmin._problem.values import changed


@dataclass(frozen=True)
class Width:
    """Whether the next space may be wide.

    Attributes
    ----------
    wide : bool
        Whether it may.
    allowed : bool
        Whether any may.
    """

    wide: bool = True
    allowed: bool = True

    @classmethod
    def off(cls) -> Width:
        """The paper: K is fixed."""
        return cls(wide=False, allowed=False)

    def after(self, outcome: Outcome) -> Width:
        """The rule after a step."""
        return changed(self, wide=False) if too_wide(outcome) else self

    def on_larger_sets(self) -> Width:
        """The rule after the sets have grown."""
        return changed(self, wide=self.allowed)


def too_wide(outcome: Outcome) -> bool:
    """Whether a step fell short for the width of its space."""
    return outcome.wide and falls_short(outcome)
