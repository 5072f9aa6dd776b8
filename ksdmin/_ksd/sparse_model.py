"""The model of a fit with very many unknowns and a sparse Jacobian.

Problem: as in ``trust_region.py``, but eigenvalues are too expensive. A step for a given radius
would need a factorisation for each shift that is tried.

Algorithm: the shift is adapted, not the radius: one factorisation for each step (Marquardt 1963).
The first shift is that of Ceres. The gain of the full step is computed with a shift of the size of
rounding, and only if the step along the gradient does not already show that it is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.sparse import bsr_array, csc_array, csr_array, eye_array
from scipy.sparse.linalg import splu

from ksdmin._ksd.line_search import MARGIN, MAX_FACTOR
from ksdmin._ksd.trust_region import INEXACT, Indices
from ksdmin._problem.arrays import EPS, Small
from ksdmin._problem.structure import Structure

FIRST_SHIFT = 1e-4  # of squared columns of length one
LEAST_SHIFT = MARGIN * EPS  # where rounding needs more, the factorisation shows it
# The accuracy of the full step, if conjugate gradients find it, and after how many products they
# end.
WHOLE_FORCING, MOST_PRODUCTS = 1e-3, 1000

Solve = Callable[[Small], Small]


class SparseModel:
    """|r + R p|^2 / 2, in the variables D p."""

    def __init__(
        self,
        R: csr_array,  # the Jacobian
        r: Small,  # the residuals
        D: Small,  # the scale of each variable
        free: Indices | None,  # the variables that may move; None: all
        structure: Structure,  # what the pattern of R says
    ) -> None:
        scales = 1 / D
        if free is not None:
            scales = np.zeros_like(D)
            scales[free] = 1 / D[free]
        self._R, self._r, self._scales = R, r, scales
        self._equations = SparseEquations(R, scales, structure)
        self._least = MARGIN * EPS * max(R.shape)
        self._solve: Solve | None = None
        self._shift = math.nan
        self._whole: Small | None = None

    def bent(self, S: Small) -> SparseModel:
        """The same: there are too many unknowns for S."""
        return self

    def unseen(self, error: float) -> list[Small]:
        """None: the model does not know the directions that this error hides."""
        return []

    def step(self, radius: float, guess: float) -> tuple[Small, float, float]:
        """The step p, the shift l, and |D p|; `guess` is the shift of the last step."""
        q = self._solved(self._r, max(guess, LEAST_SHIFT))
        return self._scales * q, self._shift, math.sqrt(q @ q)

    def solved(self, e: Small, shift: float) -> Small:
        """The step with other residuals e instead of r."""
        return np.asarray(self._scales * self._solved(e, shift))

    def _solved(self, e: Small, shift: float) -> Small:
        if self._solve is None or shift != self._shift:
            self._solve, self._shift = self._factorised(shift, INEXACT)
        return self._solve(e)

    def _factorised(self, shift: float, forcing: float) -> tuple[Solve, float]:
        solve = self._equations.solver(shift, forcing)
        while solve is None:
            shift *= MAX_FACTOR  # rounding hides that the matrix is positive definite
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


class SparseEquations:
    """The damped normal equations at a point, for any damping and any residuals.

    Problem: solve (A^T A + l I) q = -A^T e, where A = J D^-1, for some shifts l and residuals e.

    Algorithm: with the columns of A in two parts, those of blocks that can be eliminated and those
    that are kept (``_problem/structure.py``),

        [ K + l I   G^T     ] [ q_k ]   [ b_k ]
        [ G         E + l I ] [ q_e ] = [ b_e ],   E of small blocks,

    the kept ones solve (K + l I - G^T (E + l I)^-1 G) q_k = b_k - G^T (E + l I)^-1 b_e: by
    Cholesky's factors, by sparse ones, or by conjugate gradients with the diagonal blocks of that
    matrix as a preconditioner, where it is never formed. G has blocks, too, so that products go
    block by block.
    """

    def __init__(
        self,
        J: csr_array,  # the Jacobian
        scales: Small,  # the diagonal of D^-1: zero for a variable that does not move
        structure: Structure,  # what the pattern of J says
    ) -> None:
        self._structure, self._scales, n = structure, scales, J.shape[1]
        kept, gone = structure.kept, structure.eliminated
        size = structure.block * structure.blocks
        self._K = csr_array(J @ _selection(kept, np.arange(len(kept)), scales, (n, len(kept))))
        self._E = csr_array(J @ _selection(gone, structure.places, scales, (n, size)))
        self._gram = None if structure.way == "iterative" else csr_array(self._K.T @ self._K)
        if structure.blocks:
            b, c = structure.block, structure.kept_block
            self._blocks = _diagonal_blocks(csr_array(self._E.T @ self._E), b)
            self._padding = np.ones(size)
            self._padding[structure.places] = 0.0
            self._G = bsr_array(csr_array(self._E.T @ self._K).tobsr((b, c)))

    def solver(self, shift: float, accuracy: float = INEXACT) -> Solve | None:
        """e -> q; None where rounding hides that the matrix is positive definite."""
        structure = self._structure
        inverse = self._inverse(shift) if structure.blocks else None
        reduced = self._reduced(shift, inverse, accuracy)
        if reduced is None:
            return None

        def solve(e: Small) -> Small:
            b_k, b_e = self._K.T @ e, self._E.T @ e
            q = np.zeros(len(self._scales))
            if inverse is None:
                q[structure.kept] = -reduced(b_k)
                return q
            b_e = _times(inverse, b_e)
            q_k = reduced(b_k - self._G.T @ b_e) if len(b_k) else b_k
            q[structure.kept] = -q_k
            q_e = b_e - _times(inverse, self._G @ q_k)
            q[structure.eliminated] = -q_e[structure.places]
            return q

        return solve

    def _inverse(self, shift: float) -> Small:
        """The inverses of the blocks of E + l I."""
        blocks = self._blocks.copy()
        b = blocks.shape[1]
        diagonal = blocks[:, np.arange(b), np.arange(b)]
        blocks[:, np.arange(b), np.arange(b)] = diagonal + shift + self._padding.reshape(-1, b)
        return np.asarray(np.linalg.inv(blocks))

    def _reduced(self, shift: float, inverse: Small | None, accuracy: float) -> Solve | None:
        """What solves the equations of the kept variables."""
        structure, n = self._structure, len(self._structure.kept)
        if structure.way == "iterative":
            return self._by_products(shift, inverse, accuracy)
        S = self._gram
        if inverse is not None and n:
            S = S - csr_array(self._G.T @ _scaled(inverse, self._G))
        return _dense(S, shift) if structure.way == "dense" else _sparse(S, shift)

    def _by_products(self, shift: float, inverse: Small | None, accuracy: float) -> Solve:
        K, c = self._K, self._structure.kept_block

        def times(v: Small) -> Small:
            out: Small = K.T @ (K @ v) + shift * v
            return out if inverse is None else out - self._G.T @ _times(inverse, self._G @ v)

        blocks = column_blocks(K, c) + shift * np.eye(c)
        if inverse is not None:
            blocks -= self._eliminated_blocks(inverse)
        precond = _inverted(blocks)
        return lambda b: conjugate_gradients(times, b, precond, accuracy)

    def _eliminated_blocks(self, inverse: Small) -> Small:
        """The diagonal blocks of G^T (E + l I)^-1 G."""
        G, c = self._G, self._structure.kept_block
        parts = G.data.transpose(0, 2, 1) @ _scaled(inverse, G).data
        ones, places = np.ones(len(parts)), (G.indices, np.arange(len(parts)))
        sums = csr_array((ones, places), shape=(G.shape[1] // c, len(parts)))
        return np.asarray(sums @ parts.reshape(len(parts), c * c)).reshape(-1, c, c)


def conjugate_gradients(times: Solve, b: Small, precond: Small, accuracy: float) -> Small:
    """The solution of the equations to an accuracy, in the norm of the preconditioner."""
    q, left = np.zeros_like(b), b.copy()
    z = _times(precond, left)
    d, size = z, float(left @ z)
    enough = accuracy**2 * size
    for _ in range(MOST_PRODUCTS):
        if not size > enough or not math.isfinite(size):
            break
        Hd = times(d)
        along = float(d @ Hd)
        if not along > 0:
            break
        q = q + size / along * d
        left = left - size / along * Hd
        z = _times(precond, left)
        last, size = size, float(left @ z)
        d = z + size / last * d
    return q


def _dense(S: csr_array, shift: float) -> Solve | None:
    """By Cholesky's factors."""
    matrix = S.toarray()
    matrix[np.diag_indices_from(matrix)] += shift
    if not len(matrix):
        return lambda b: b
    factor, failed = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    if failed or not math.isfinite(factor[-1, -1]):
        return None
    return lambda b: dpotrs(factor, b, lower=1)[0]


def _sparse(S: csr_array, shift: float) -> Solve | None:
    """By sparse factors."""
    matrix = csc_array(S + shift * eye_array(S.shape[0]))
    try:
        factors = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # exactly singular
        return None
    return factors.solve if (factors.U.diagonal() > 0).all() else None


def _selection(columns: Small, places: Small, scales: Small, shape: tuple[int, int]) -> csr_array:
    """What takes columns to their places, scaled."""
    return csr_array((scales[columns], (columns, places)), shape=shape)


def _diagonal_blocks(H: csr_array, b: int) -> Small:
    """The blocks of a matrix that has no others."""
    blocks, entries = np.zeros((H.shape[0], b)), H.tocoo()
    blocks[entries.row, entries.col % b] = entries.data
    return blocks.reshape(-1, b, b)


def column_blocks(K: csr_array, c: int) -> Small:
    """The diagonal blocks of K^T K, of c columns each."""
    columns = K.tocsc()
    if c == 1:
        squares = np.zeros(K.shape[1])
        lengths = np.add.reduceat(np.append(columns.data**2, 0.0), columns.indptr[:-1])
        squares[:] = np.where(np.diff(columns.indptr) > 0, lengths, 0.0)
        return squares.reshape(-1, 1, 1)
    blocks = np.empty((K.shape[1] // c, c, c))
    for i in range(c):
        for j in range(i + 1):
            products = columns[:, i::c].multiply(columns[:, j::c])
            blocks[:, i, j] = blocks[:, j, i] = products.sum(axis=0)
    return blocks


def _scaled(inverse: Small, G: bsr_array) -> bsr_array:
    """(E + l I)^-1 G."""
    rows = np.repeat(np.arange(len(G.indptr) - 1), np.diff(G.indptr))
    return bsr_array((inverse[rows] @ G.data, G.indices, G.indptr), shape=G.shape)


def _times(blocks: Small, v: Small) -> Small:
    """The product of a matrix of diagonal blocks."""
    b = blocks.shape[1]
    return np.asarray(np.einsum("kij,kj->ki", blocks, v.reshape(-1, b)).ravel())


def _inverted(blocks: Small) -> Small:
    """The inverses of blocks; of their diagonals, where one of them is singular."""
    try:
        return np.linalg.inv(blocks)
    except LinAlgError:
        c = blocks.shape[1]
        diagonal = blocks[:, np.arange(c), np.arange(c)]
        inverse = np.zeros_like(blocks)
        inverse[:, np.arange(c), np.arange(c)] = 1 / np.where(diagonal > 0, diagonal, 1.0)
        return inverse
