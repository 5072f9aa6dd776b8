"""The damped Gauss-Newton equations of a Jacobian's rows, for any damping and any residuals.

Problem: with the curvature H = R^T R + p I at x, and the gradient g = R^T r + q, both without the
variables that a bound holds, solve (H + l D) d = -(R^T e + q) for a damping l, and any residuals e
in the place of r. D, diagonal, has the lengths of the columns of R: half way, on a logarithmic
scale, between Levenberg's identity and Marquardt's diagonal. (On nets, either does as well or
better than that one; with scales that differ much, so does the other.) A penalty says that the
variables are alike: D is the identity there, and q the penalty's gradient. D is the identity, too,
where there are fewer rows than unknowns: many steps then solve R d = -r, and the damping says which
one, the shortest. (With the lengths of the columns, physics-informed nets came to a loss of zero
which holds at their points only.)

Algorithm: in variables scaled by D^1/2, one factorisation for each damping, of R^T R + m I where
there are fewer unknowns than rows, m = p + l; or else of R R^T + m I, which is smaller. Either is
of low rank as far as m allows (``low_rank.py``). With the second,

    d = -(R^T u + q / m),   (R R^T + m I) u = e - R q / m.

The matrices stay in the user's namespace, on its device, in float64.
"""

from __future__ import annotations

from collections.abc import Callable

from ksdmin._ksd.krylov import MIN_REMAINDER
from ksdmin._ksd.line_search import EPS
from ksdmin._ksd.low_rank import ShiftedOuterProduct
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.protocol import Jacobian


class GaussNewton:
    """The equations at a point.

    Parameters
    ----------
    space : Space
        Where the vectors live.
    jacobian : Jacobian
        R, r and the penalty.
    g : array
        The gradient.
    free : array or None
        1 for each variable that may move, 0 for one that a bound holds; None: all may.
    whole_below : float
        For such a shift m and below, low rank is known to be no less work.

    Attributes
    ----------
    matrix : ShiftedOuterProduct
        R^T R or R R^T.
    residuals : array
        r, in float64.
    scale : float
        The mean of the eigenvalues of H that are not zero by construction.
    """

    def __init__(
        self,
        space: Space,
        jacobian: Jacobian,
        g: Array,
        free: Array | None,
        whole_below: float = 0.0,
    ) -> None:
        R, r = space.in_double(jacobian.rows), space.in_double(jacobian.residuals)
        if free is not None:
            R *= space.in_double(free)
        self._space, self._penalty, self.residuals = space, jacobian.penalty, r
        self._few_rows = R.shape[0] < R.shape[1]
        alike = self._penalty or self._few_rows
        self._scales = None if alike else variable_scales(space, R)
        if self._scales is not None:
            R *= self._scales  # in place: it is large
        self._R = R
        self.matrix = ShiftedOuterProduct(space, R if self._few_rows else R.T, whole_below)
        q, trace = self._scaled(space.in_double(g)) - r @ R, self.matrix.trace
        size, left, largest = space.floats(trace, (q @ q) ** 0.5, (trace * (r @ r)) ** 0.5)
        self._q = q if left > MIN_REMAINDER * space.eps * largest else None
        self.scale = size / self.matrix.order + self._penalty

    def _scaled(self, u: Array) -> Array:
        return u if self._scales is None else u * self._scales

    def linear(self, d: Array) -> Array:
        """R d: by how much a step d changes the residuals, to first order."""
        return self._R @ self._in_scaled_variables(d)

    def square(self, d: Array) -> Array:
        """d^T D d, which the damping multiplies."""
        d = self._in_scaled_variables(d)
        return d @ d

    def _in_scaled_variables(self, d: Array) -> Array:
        d = self._space.in_double(d)
        return d if self._scales is None else d / self._scales

    def solver(self, damping: float) -> Callable[[Array], Array] | None:
        """e -> d; None where the equations are lost in rounding."""
        shift = damping + self._penalty
        solve = self.matrix.solver(shift)
        if solve is None:
            return None
        by = self._by_rows if self._few_rows else self._by_unknowns

        def step(e: Array) -> Array:
            d = self._scaled(by(solve, self._space.in_double(e), shift))
            return self._space.in_own_dtype(d)

        return step

    def _by_rows(self, solve: Callable[[Array], Array], e: Array, shift: float) -> Array:
        if self._q is None:
            return -(solve(e) @ self._R)
        u = solve(e - self._R @ self._q / shift)
        return -(u @ self._R) - self._q / shift

    def _by_unknowns(self, solve: Callable[[Array], Array], e: Array, shift: float) -> Array:
        slopes = e @ self._R
        return -solve(slopes if self._q is None else slopes + self._q)


def variable_scales(space: Space, R: Array) -> Array:
    """D^-1/2. A column that is lost beside the longest makes no variable move more freely."""
    lengths = space.xp.linalg.vector_norm(R, axis=0)
    least = EPS**0.5 * space.xp.max(lengths)
    return space.xp.where(lengths > least, lengths, least + (least == 0)) ** -0.5
