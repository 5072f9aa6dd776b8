"""How orthogonal the vectors of Lanczos' recurrence still are, without looking at them."""

from __future__ import annotations

import math

import numpy as np

from ksdmin._problem.arrays import Small

# As a power of the rounding error: how far two vectors may be from orthogonal. 0.5 is the least
# that keeps H_bar accurate, but a quadratic function is solved to half of the digits then; 0.75
# costs twice as many full orthogonalisations, still a tenth of all.
ORTHOGONAL = 0.75


class Orthogonality:
    """An estimate of the largest v_j^T P v_k, j < k, that rounding leaves (Simon 1984)."""

    def __init__(self, capacity: int, eps: float, noise: float = 0.0) -> None:
        self._eps, self._tolerance = max(eps, noise), eps**ORTHOGONAL
        self._last, self._this = np.zeros(capacity + 1), np.zeros(capacity + 1)
        self._again = False

    def lost_by(self, T: Small, k: int, beta: float) -> bool:
        """Whether vector k + 1 with the norm `beta` would no longer be orthogonal to the first.

        True means that the caller makes it so; that also goes for the one after it, since the
        recurrence has three terms.
        """
        if not 0 < beta < math.inf:
            return False
        this, last, alpha = self._this, self._last, float(T[k, k])
        this[k] = 1.0
        error = self._eps * (abs(alpha) + beta)
        largest = error
        if k:  # into `last`, which is not needed again
            estimates = last[:k]
            estimates *= -T[k, k - 1]
            estimates += T[:k, : k + 1].dot(this[: k + 1])
            estimates -= alpha * this[:k]
            np.abs(estimates, out=estimates)
            largest += float(np.maximum.reduce(estimates))
        lost = largest > self._tolerance * beta
        again, self._again = self._again, lost and not self._again
        if lost or again:
            last[: k + 1] = self._eps
        else:
            last[k] = 0.0
            last[: k + 1] += error
            last[: k + 1] /= beta
        self._last, self._this = this, last
        return lost or again
