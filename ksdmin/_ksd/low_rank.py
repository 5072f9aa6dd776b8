"""Equations with A A^T + s I, where few eigenvalues of A A^T are above the shift s.

Problem: solve (A A^T + s I) u = b for one shift and several b, from few columns of A A^T where few
of its eigenvalues are larger than s. (For a net's Jacobian they fall like a geometric series: of
10,000, some 50 to 500 are.)

Algorithm: F F^T takes the place of A A^T, with F from a partial Cholesky factorisation whose pivots
are drawn in proportion to what is left of the diagonal (Chen, Epperly, Tropp and Webber, 2022). A
block of pivots at a time, it goes on until the trace of the rest, which bounds its eigenvalues, is
not above s. The draws are evenly spaced along the diagonal's running sum instead of random, so that
the same matrix has the same factor. Where that would take a large share of all columns, A A^T is
computed and factorised as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space

# Columns at first. Every further block has half as many as all before it.
FIRST_BLOCK = 64
# Of all columns: with more, the whole matrix is less work.
LARGEST_SHARE = 1 / 4

Solve = Callable[[Array], Array]
OrthogonalFactor = tuple[Array, Array]  # Q and M: F F^T = Q M Q^T, with orthonormal columns of Q


class ShiftedOuterProduct:
    """A A^T + s I for any shift s, in the user's namespace and in float64.

    Parameters
    ----------
    space : Space
        Of A's arrays.
    A : array
        A matrix.
    whole_below : float
        For such a shift and below, the whole matrix is known to be less work.

    Attributes
    ----------
    order : int
        Of the matrix.
    trace : array
        That of A A^T.
    rank : int
        Columns of the last factor; as many as the matrix has where it is taken as a whole.
    whole_below : float
        The same as the parameter, or the shift since then for which that was found out.
    """

    def __init__(self, space: Space, A: Array, whole_below: float = 0.0) -> None:
        self.order: int = A.shape[0]
        self.rank, self.whole_below = self.order, whole_below
        self._space, self._A = space, A
        self._diagonal = space.xp.linalg.vector_norm(A, axis=1) ** 2
        self.trace = space.xp.sum(self._diagonal)
        self._whole: Array | None = None  # its lower triangle
        self._within: OrthogonalFactor | None = None  # for the shifts from `_least` on
        self._least = math.inf

    def solver(self, shift: float) -> Solve | None:
        """b -> u; None where the equations are lost in rounding."""
        if shift < self._least:
            self._factorise(shift)
        if self._within is not None:
            return low_rank_solver(self._space, self._within, shift)
        return self._space.definite_solver(self._whole, shift)

    def _factorise(self, shift: float) -> None:
        """For this shift and any larger one."""
        F = None
        if shift > self.whole_below:
            F = partial_factor(self._space, self._A, self._diagonal, shift)
        if F is not None:
            Q, T = self._space.xp.linalg.qr(F)
            self._within, self._least, self.rank = (Q, T @ T.T), shift, F.shape[1]
            return
        self.whole_below = max(self.whole_below, shift)
        self._within, self._least, self.rank = None, 0.0, self.order
        self._whole = self._space.lower_product(self._A)


def partial_factor(space: Space, A: Array, diagonal: Array, tolerance: float) -> Array | None:
    """F with a rest A A^T - F F^T of a trace up to the tolerance; None: the whole is less work."""
    (left,) = space.to_host(diagonal)
    noise = float(np.sum(left)) * float(np.finfo(left.dtype).eps)
    F = A[:, :0]
    while True:
        block = max(FIRST_BLOCK, F.shape[1] // 2)
        if tolerance < noise or F.shape[1] + block > LARGEST_SHARE * A.shape[0]:
            return None
        pivots = space.indices(evenly_drawn(left, block))
        columns = A @ A[pivots, :].T - F @ F[pivots, :].T
        L = space.lower_factor(columns[pivots, :], noise)
        if L is None:
            return None
        more = space.xp.linalg.solve(L, columns.T).T
        F = space.xp.concat([F, more], axis=1)
        (taken,) = space.to_host(space.xp.linalg.vector_norm(more, axis=1) ** 2)
        left = np.maximum(left - taken, 0.0)
        if np.sum(left) <= tolerance:
            return F


def evenly_drawn(weights: Small, count: int) -> Small:
    """Up to `count` different indices, more of them where weights are larger."""
    sums = np.cumsum(weights)
    places = (np.arange(count) + 0.5) * (sums[-1] / count)
    return np.unique(np.minimum(np.searchsorted(sums, places), len(weights) - 1))


def low_rank_solver(space: Space, factor: OrthogonalFactor, shift: float) -> Solve | None:
    """b -> (Q M Q^T + shift I)^-1 b."""
    Q, M = factor
    solve_within = space.definite_solver(M, shift)
    if solve_within is None:
        return None

    def solve(b: Array) -> Array:
        within = b @ Q
        return Q @ solve_within(within) + (b - Q @ within) / shift

    return solve
