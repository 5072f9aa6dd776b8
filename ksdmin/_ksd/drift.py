"""By how much the curvature along old pairs of the model has changed since it was measured.

Problem: the pairs (s_i, y_i) of the quasi-Newton model are of points behind. Where the curvature
falls along the way, as in a regression that fits its samples better and better, old pairs keep
steps short: more pairs then take more passes, not fewer.

Algorithm: a new pair (s, y) is scaled so that s^T y = 1, as all are. With the curvature H of the
old pairs, s_i^T y and y_i^T s would both be s_i^T H s. The factor f that makes the expected
b = y_i^T s what is measured, a = s_i^T y, but stays at 1 where the step has nothing to do with the
pair, minimises (f b - a)^2 + (f - 1)^2: it is (1 + a b) / (1 + b^2). A step knows of one direction
only. So two in a row have to agree: the median of their factors and of 1 is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ksdmin._ksd.line_search import EPS
from ksdmin._problem.arrays import Small


def _none() -> Small:
    return np.ones(0)


@dataclass(frozen=True)
class Drift:
    """What the curvature along each pair is multiplied with by now, the oldest first.

    Attributes
    ----------
    factors : ndarray
        One for each pair.
    last : ndarray
        Those of the last step alone.
    """

    factors: Small = field(default_factory=_none)
    last: Small = field(default_factory=_none)

    def after_step(self, measured: Small, expected: Small) -> Drift:
        """After the pair (s, y) of a step: all s_i^T y, and all y_i^T s, of the pairs that stay."""
        gone = len(self.factors) - len(measured)
        factors, last = self.factors[gone:], self.last[gone:]
        with np.errstate(all="ignore"):  # what is not finite is left out
            seen = (1 + measured * expected) / (1 + factors * expected**2)
        seen = np.where((seen > 0) & np.isfinite(seen), seen, 1.0)
        factors = np.clip(factors * _median(seen, last), EPS, 1 / EPS)
        return Drift(np.append(factors, 1.0), np.append(seen, 1.0))

    def after_basis(self, new: int, kept: int) -> Drift:
        """After so many pairs of a basis, which leave `kept` of all pairs."""
        factors = np.concatenate([self.factors, np.ones(new)])[-kept:]
        return Drift(factors, np.ones(kept))


def _median(u: Small, w: Small) -> Small:
    """The median of u, w and 1, for each entry; numpy's takes ten times as long."""
    return np.maximum(np.minimum(u, w), np.minimum(np.maximum(u, w), 1.0))
