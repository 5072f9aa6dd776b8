"""The damped Gauss-Newton equations of a Jacobian's rows, for any damping and any residuals.

Problem: the curvature at x is H = R^T R + p I, and the gradient g = R^T r + q, where p and q come
from a penalty. Both leave out the variables that a bound holds. Solve (H + l D) d = -(R^T e + q)
for a damping l and any residuals e in place of r. D is diagonal, with the lengths of the columns
of R: half way, on a logarithmic scale, between Levenberg's identity and Marquardt's diagonal. (It
does as well as the better of the two, on nets and where the scales of variables differ much.)
D is the identity in two cases. With a penalty, which comes in units of its own. And with
fewer rows than unknowns: then many steps solve R d = -r, and the damping selects the shortest.
(With the lengths of the columns, physics-informed nets came to a loss of zero at their points,
but not between them.)

Algorithm: in variables scaled by D^1/2, factorise once for each damping: R^T R + m I with m = p + l
if there are fewer unknowns than rows, and otherwise R R^T + m I, which is smaller. Both use low
rank as far as m allows, and are factorised twice where rounding would hide m
(`ShiftedOuterProduct`). With the second,

    d = -(R^T u + q / m),   (R R^T + m I) u = e - R q / m.

If p differs from variable to variable, the same holds in variables scaled by ((p + l) / m)^1/2 with
m = mean(p) + l. They are others for each damping.

The matrices stay in the user's namespace, on its device, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ksdmin._ksd.krylov import MIN_REMAINDER
from ksdmin._ksd.line_search import MARGIN
from ksdmin._problem.arrays import EPS, Array, Small, Space
from ksdmin._problem.protocol import Jacobian

# Columns in the first block. Each further block has half as many as all before it.
FIRST_BLOCK = 64
# A share of all columns: beyond it, the whole matrix is less work.
LARGEST_SHARE = 1 / 4

Solve = Callable[[Array], Array]
Step = Callable[[Array], Array]  # e -> d
OrthogonalFactor = tuple[Array, Array]  # Q and M: F F^T = Q M Q^T, with orthonormal columns of Q


class GaussNewton:
    """The equations at a point."""

    def __init__(
        self,
        space: Space,
        jacobian: Jacobian,  # R, r and the penalty
        g: Array,
        # 1 for each variable that may move, 0 for one that a bound holds; None: all may.
        free: Array | None,
        # For such a shift m and below, low rank is known to be no less work.
        whole_below: float = 0.0,
    ) -> None:
        R, r = space.in_double(jacobian.rows), space.in_double(jacobian.residuals)
        if free is not None:
            R *= space.in_double(free)
        self._space, self._penalty, self.residuals = space, jacobian.penalty, r
        self._few_rows = R.shape[0] < R.shape[1]
        alike = jacobian.has_penalty or self._few_rows
        self._scales = None if alike else variable_scales(space, R)
        if self._scales is not None:
            R *= self._scales  # in place: it is large
        self._R = R
        # R R^T or R^T R.
        self.matrix = self._outer_product(R, whole_below)
        q, trace = self._scaled(space.in_double(g)) - r @ R, self.matrix.trace
        size, left, largest = space.floats(trace, (q @ q) ** 0.5, (trace * (r @ r)) ** 0.5)
        self._q = q if left > MIN_REMAINDER * space.eps * largest else None
        self._each: Array | None = None  # the penalty of each variable, where they differ
        self._shift = jacobian.penalty  # the penalty, or the mean of it
        if not isinstance(jacobian.penalty, float):
            self._each = space.in_double(jacobian.penalty)
            self._shift = float(space.xp.mean(self._each))
        # The mean of the eigenvalues of H that are not zero by construction.
        self.scale = size / self.matrix.order + self._shift

    @property
    def least_damping(self) -> float:
        """Less than this says nothing: it is lost in the rounding of the rows."""
        return self.matrix.least_shift or EPS * self.scale

    def _scaled(self, u: Array) -> Array:
        return u if self._scales is None else u * self._scales

    def cosine(self, g: Array, norm: float) -> float:
        """The largest cosine between a column of R and residuals with this norm and gradient."""
        lengths = (self._space.xp.linalg.vector_norm(self._R, axis=0) ** 2 + self._penalty) ** 0.5
        slopes = self._scaled(self._space.in_double(g))
        return self._space.max_abs(slopes / self._space.xp.where(lengths > 0, lengths, 1.0)) / norm

    def largest_term(self, x: Array) -> float:
        """A bound of |R| |x|, the size of the terms of residuals that are linear in x."""
        x = self._in_scaled_variables(x)
        trace, square = self._space.floats(self.matrix.trace, x @ x)
        return math.sqrt(trace * square)

    def left(self, x: Array) -> float:
        """The size of r relative to |R| |x|, row by row, as a root mean square."""
        xp, x = self._space.xp, abs(self._in_scaled_variables(x))
        rows = max(1, self.matrix.order**2 // len(x))  # no more memory than the matrix takes
        total = 0.0
        for start in range(0, len(self.residuals), rows):
            r, R = self.residuals[start : start + rows], self._R[start : start + rows]
            terms = abs(R) @ x
            shares = xp.where(r == 0, 0.0 * r, abs(r) / xp.where(terms > 0, terms, math.nan))
            total += float(xp.sum(shares**2))
        return math.sqrt(total / len(self.residuals))

    def linear(self, d: Array) -> Array:
        """R d: the change of the residuals by a step d, to first order."""
        return self._R @ self._in_scaled_variables(d)

    def square(self, d: Array) -> Array:
        """d^T D d, which the damping multiplies."""
        d = self._in_scaled_variables(d)
        return d @ d

    def length(self, d: Array) -> float:
        """The length of d in these scales."""
        return math.sqrt(float(self.square(d)))

    def _in_scaled_variables(self, d: Array) -> Array:
        d = self._space.in_double(d)
        return d if self._scales is None else d / self._scales

    def solver(self, damping: float) -> Step | None:
        """e -> d; None if rounding makes the equations singular."""
        shift = damping + self._shift
        R, q, scales = self._R, self._q, self._scales
        if self._each is not None:
            scales = (shift / (damping + self._each)) ** 0.5
            R, q = R * scales, None if q is None else q * scales
            self.matrix = self._outer_product(R, self.matrix.whole_below)
        solved = self.matrix.solver(shift)
        if solved is None:
            return None
        space = self._space

        def step(e: Array) -> Array:
            e = space.in_double(e)
            if not self._few_rows:
                d = -solved.of_product(e, q)
            elif q is None:
                d = -solved.then_transposed(e)
            else:
                d = -solved.then_transposed(e - R @ q / shift) - q / shift
            return space.in_own_dtype(d if scales is None else d * scales)

        return step

    def _outer_product(self, R: Array, whole_below: float) -> ShiftedOuterProduct:
        """R R^T or R^T R, whichever is smaller."""
        return ShiftedOuterProduct(self._space, R if self._few_rows else R.T, whole_below)


def variable_scales(space: Space, R: Array) -> Array:
    """D^-1/2. Very short columns count as longer, so that their variables do not move too far."""
    lengths = space.xp.linalg.vector_norm(R, axis=0)
    least = EPS**0.5 * space.xp.max(lengths)
    return space.xp.where(lengths > least, lengths, least + (least == 0)) ** -0.5


class Solved(NamedTuple):
    """What solves (A A^T + s I) u = b for one shift s."""

    then_transposed: Callable[[Array], Array]  # b -> A^T u
    of_product: Callable[[Array, Array | None], Array]  # e, q -> u for b = A e + q; None: no q


class ShiftedOuterProduct:
    """A A^T + s I for any shift s, in the user's namespace and in float64.

    Problem: solve (A A^T + s I) u = b for one shift and several b, from few columns of A A^T where
    few of its eigenvalues are larger than s. (For a net's Jacobian they fall like a geometric
    series: of 10,000, some 50 to 500 are.)

    Algorithm: F F^T takes the place of A A^T, with F from a partial Cholesky factorisation whose
    pivots are drawn in proportion to what is left of the diagonal (Chen, Epperly, Tropp and Webber,
    2022). A block of pivots at a time, it goes on until the trace of the rest, which bounds its
    eigenvalues, is not above s. The draws are evenly spaced along the diagonal's running sum
    instead of random, so that the same matrix has the same factor. Where that would take a large
    share of all columns, A A^T is computed and factorised as a whole. For shifts that its rounding
    would hide it is factorised twice (`Refined`).
    """

    def __init__(self, space: Space, A: Array, whole_below: float = 0.0) -> None:
        self.order: int = A.shape[0]
        self.rank = self.order  # columns of the last factor; all, where the matrix is taken whole
        self.whole_below = whole_below  # for such a shift and below, the whole is less work
        self._space, self._A = space, A
        self._diagonal = space.xp.linalg.vector_norm(A, axis=1) ** 2
        self.trace = space.xp.sum(self._diagonal)
        self._whole: Array | None = None  # its lower triangle
        self._within: OrthogonalFactor | None = None  # for the shifts from `_least` on
        self._least = math.inf
        precise = space.eps <= EPS
        # Cholesky's factorisation fails for shifts up to a third of that; for those up to all of it
        # solutions have less than three digits.
        self._hidden_below = MARGIN * EPS * float(self.trace) if precise else 0.0
        # Shifts below it are lost in the rounding of A. 0 where vectors have less than double
        # precision: there nothing is factorised twice.
        self.least_shift = self.order * EPS * self._hidden_below
        self._refined: Refined | None = None

    def solver(self, shift: float) -> Solved | None:
        """For this shift; None if rounding makes the equations singular."""
        if self.least_shift <= shift < self._hidden_below:
            self.rank = self.order
            if self._refined is None:
                whole = self._space.lower_product(self._A)
                L = self._space.lower_factor(whole, self._hidden_below)
                if L is None:
                    return None
                self._refined = Refined(self._space, self._A, L)
            return self._refined.solver(shift)
        if shift < self._least:
            self._factorise(shift)
        if self._within is not None:
            solve = low_rank_solver(self._space, self._within, shift)
        else:
            solve = self._space.definite_solver(self._whole, shift)
        if solve is None:
            return None
        A, solved = self._A, solve

        def of_product(e: Array, q: Array | None) -> Array:
            return solved(e @ A.T if q is None else e @ A.T + q)

        return Solved(lambda b: solved(b) @ A, of_product)

    def _factorise(self, shift: float) -> None:
        """Factorise for this shift, and for any larger one."""
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
    """F such that A A^T - F F^T has at most this trace; None: the whole matrix is less work."""
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
        more = space.lower_solve(L, columns.T).T
        F = space.xp.concat([F, more], axis=1)
        (taken,) = space.to_host(space.xp.linalg.vector_norm(more, axis=1) ** 2)
        left = np.maximum(left - taken, 0.0)
        if np.sum(left) <= tolerance:
            return F


def evenly_drawn(weights: Small, count: int) -> Small:
    """Up to `count` different indices, denser where weights are larger."""
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


class Refined:
    """A A^T + s I for shifts s that the rounding of A A^T would hide.

    Problem: A A^T has the squares of A's singular values. Those below 1e-8 of the largest are lost
    in its rounding. Solve as well as with a QR factorisation of A, for several shifts, by products
    and triangular solves alone.

    Algorithm: Cholesky's QR factorisation with a shift (Fukaya et al., 2020). With L L^T equal to
    A A^T + t I, for a shift t that rounding does not hide,

        A A^T + s I = L G L^T,   G = Q Q^T + s L^-1 L^-T,   Q = L^-1 A.

    G has eigenvalues between s / t and 1. Q is made from A itself, so that nothing is lost.
    """

    def __init__(self, space: Space, A: Array, L: Array) -> None:
        self._space, self._L, self._Q = space, L, space.lower_solve(L, A)
        eye = space.xp.eye(L.shape[0], dtype=L.dtype, device=space.device)
        self._of_A = space.lower_product(self._Q)
        self._of_shift = space.lower_product(space.lower_solve(L, eye))

    def solver(self, shift: float) -> Solved | None:
        """For this shift; None where even so it is lost in rounding."""
        L, Q, lower_solve = self._L, self._Q, self._space.lower_solve
        within = self._space.definite_solver(self._of_A + shift * self._of_shift, 0.0)  # with G
        if within is None:
            return None

        def of_product(e: Array, q: Array | None) -> Array:
            b = Q @ e if q is None else Q @ e + lower_solve(L, q)
            return lower_solve(L, within(b), transposed=True)

        return Solved(lambda b: within(lower_solve(L, b)) @ Q, of_product)
