"""The model of a fit with very many unknowns and a sparse Jacobian.

Problem: as in ``trust_region.py``, but eigenvalues are too expensive. A step for a given radius
would need a factorisation for each shift that is tried.

Algorithm: the shift is adapted, not the radius: one factorisation for each step (Marquardt 1963).
The first shift is that of Ceres. The gain of the full step is computed with a shift of the size of
rounding, and only if the step along the gradient does not already show that it is large.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_array

from ksdmin._ksd.sparse_equations import FORCING, Solve, SparseEquations
from ksdmin._ksd.trust_region import Indices
from ksdmin._problem.arrays import EPS, Small
from ksdmin._problem.structure import Structure

# The first shift, of squared columns of length one, and by how much a shift grows where rounding
# hides that the matrix is positive definite.
FIRST_SHIFT, GROWTH = 1e-4, 10.0
# The accuracy of the full step, if conjugate gradients find it.
WHOLE_FORCING = 1e-3


class SparseModel:
    """|r + R p|^2 / 2, in the variables D p.

    Parameters
    ----------
    R : csr_array
        The Jacobian.
    r : array
        The residuals.
    D : array
        The scale of each variable.
    free : array of int or None
        The variables that may move; None: all.
    structure : Structure
        What the pattern of R says.
    """

    def __init__(
        self, R: csr_array, r: Small, D: Small, free: Indices | None, structure: Structure
    ) -> None:
        scales = 1 / D
        if free is not None:
            scales = np.zeros_like(D)
            scales[free] = 1 / D[free]
        self._R, self._r, self._scales = R, r, scales
        self._equations = SparseEquations(R, scales, structure)
        self._least = 10 * EPS * max(R.shape)
        self._solve: Solve | None = None
        self._shift = math.nan
        self._whole: Small | None = None

    def step(self, radius: float, guess: float) -> tuple[Small, float, float]:
        """The step p, the shift l, and |D p|; `guess` is the shift of the last step."""
        q = self._solved(self._r, max(guess, self._least))
        return self._scales * q, self._shift, math.sqrt(q @ q)

    def solved(self, e: Small, shift: float) -> Small:
        """The step with other residuals e instead of r."""
        return np.asarray(self._scales * self._solved(e, shift))

    def _solved(self, e: Small, shift: float) -> Small:
        if self._solve is None or shift != self._shift:
            self._solve, self._shift = self._factorised(shift, FORCING)
        return self._solve(e)

    def _factorised(self, shift: float, forcing: float) -> tuple[Solve, float]:
        solve = self._equations.solver(shift, forcing)
        while solve is None:
            shift *= GROWTH
            solve = self._equations.solver(shift, forcing)
        return solve, shift

    def full_reduction(self, error: float, enough: float = math.inf) -> float:
        """The gain that the model predicts for its minimum; if it exceeds `enough`, a lower bound.

        Eigenvalues that the relative `error` of the Jacobian hides do not count.
        """
        g = self._scales * (self._R.T @ self._r)
        bent = self._R @ (self._scales * g)
        slope, curvature = float(g @ g), float(bent @ bent)
        if not slope > 0:
            return 0.0
        along = slope * slope / curvature / 2 if curvature > 0 else math.inf
        if along >= enough:
            return along
        q = self._whole_step(error)
        change = self._R @ (self._scales * q)
        return max(along, -float(g @ q) - float(change @ change) / 2)

    def full_length(self, error: float) -> float:
        """|D p| of the model's minimum."""
        q = self._whole_step(error)
        return math.sqrt(q @ q)

    def _whole_step(self, error: float) -> Small:
        if self._whole is None:
            solve, _ = self._factorised(max(self._least, error**2), WHOLE_FORCING)
            self._whole = solve(self._r)
        return self._whole
