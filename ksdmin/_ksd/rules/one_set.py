"""One set in the place of A, B and C: whether it has too few samples.

The run minimises the loss on the set, as if there were no other samples. As many other samples show
what that is worth. Their loss may well be the larger one, as long as it comes down, too: steps on
twice the samples would cost twice as much. So the set is too small where the others' loss is more
than twice as large, and falls by less than half as much, on a logarithmic scale, over the last
steps. Both are sums of squares, of which nothing is left at zero: a scale for losses of other kinds
would depend on a constant that somebody adds to them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Times the loss on a set: on as many other samples, more than that is no chance.
FITTED_ONLY_HERE = 2.0


@dataclass(frozen=True)
class OneSet:
    """What is known of the set.

    Attributes
    ----------
    here, elsewhere : float
        The loss on it, and on the other samples, after the last step.
    fall_here, fall_elsewhere : float
        The logarithms of the factors by which both have fallen; every step counts half as much as
        the next.
    """

    here: float = math.nan
    elsewhere: float = math.nan
    fall_here: float = 0.0
    fall_elsewhere: float = 0.0

    def after(self, here: float, elsewhere: float) -> OneSet:
        """The rule after a step to a point with these losses."""
        return OneSet(
            here,
            elsewhere,
            self.fall_here / 2 + _fall(self.here, here),
            self.fall_elsewhere / 2 + _fall(self.elsewhere, elsewhere),
        )

    @property
    def too_small(self) -> bool:
        """Whether steps on more samples would gain more for their cost."""
        if self.elsewhere == math.inf:
            return True
        fitted = not self.elsewhere <= FITTED_ONLY_HERE * self.here
        return fitted and self.fall_elsewhere < self.fall_here / 2


def _fall(before: float, after: float) -> float:
    """The logarithm of a factor; 0 where there is none."""
    known = 0 < before < math.inf and 0 < after < math.inf
    return math.log(before) - math.log(after) if known else 0.0
