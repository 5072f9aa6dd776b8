"""The step of a quadratic model within a trust region, from the model's eigenvalues.

Problem: minimise c^T q + q^T diag(w) q / 2 over |q| <= radius.

Algorithm: q = -c / (w + l), with l = 0 if that is short enough, and otherwise such that |q| is the
radius, within a tenth. 1 / |q| is nearly linear in l, so that a few Newton steps find l (Hebden
1973, Moré 1978). They stay between bounds that tighten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dnrm2
from scipy.linalg.lapack import dgeqrf, dgeqrf_lwork, dgesdd, dormqr

from ksdmin._ksd.cost_model import read
from ksdmin._ksd.line_search import MAX_TRIALS
from ksdmin._problem.arrays import EPS, Small
from ksdmin._problem.protocol import CALL_COST

# How exactly the step of a fit is found: its length, of the radius (Moré's); where conjugate
# gradients find it, the residual of its equations, of what it was (Ceres has the same one).
INEXACT = 0.1
# If Newton's step leaves the bounds, the next try is at least this share of the upper bound.
LEAST_SHARE = 1e-3

Indices = npt.NDArray[np.intp]


@dataclass(eq=False)
class QuadraticModel:
    """A model of the value along steps p, in the variables D p and a basis of eigenvectors."""

    # Eigenvalues and slopes.
    w: Small
    c: Small
    full: Small | None  # the coefficients of the minimum; None where there is none
    basis: Small  # its columns are the eigenvectors
    D: Small  # the scale of each variable
    free: Indices | None  # the variables that may move; None: all

    def bent(self, S: Small) -> QuadraticModel:
        """The model with p^T S p / 2 added."""
        D, free = self.D, self.free
        inner = S if free is None else S[np.ix_(free, free)]
        scales = D if free is None else D[free]
        inner = inner / scales / scales[:, None]
        H = self.basis.T @ inner @ self.basis
        H = (H + H.T) / 2
        H[np.diag_indices_from(H)] += self.w
        w, Q = np.linalg.eigh(H)
        c = self.c @ Q
        full = -c / w if w[0] > EPS * len(w) * max(w[-1], -w[0]) else None
        return QuadraticModel(w, c, full, self.basis @ Q, D, free)

    def full_reduction(self, error: float, enough: float = math.inf) -> float:
        """The gain that the model predicts for its minimum; infinite if there is none.

        Eigenvalues that the relative `error` of the Jacobian hides do not count.
        """
        if self.full is None:
            return math.inf
        c, full = self.c, self.full
        if error:
            resolved = self.w > error**2 * self.w.max()
            c, full = c[resolved], full[resolved]
        return -float(c.dot(full)) / 2

    def unseen(self, error: float) -> list[Small]:
        """The unit vectors along which this error of the Jacobian hides the slope."""
        hidden = np.flatnonzero(self.w <= error**2 * self.w.max(initial=0.0))
        units = np.eye(len(self.w))
        return [self.in_variables(units[i]) for i in hidden]

    def step(self, radius: float, guess: float) -> tuple[Small, float, float]:
        """The step p, the shift l, and |D p|; `guess` is the shift of the last step."""
        q, shift, length = within(self.w, self.c, self.full, radius, guess)
        return self.in_variables(q), shift, length

    def in_variables(self, q: Small) -> Small:
        """The step with these coefficients."""
        scaled = self.basis.dot(q)
        if self.free is None:
            return np.asarray(scaled / self.D)
        p = np.zeros_like(self.D)
        p[self.free] = scaled / self.D[self.free]
        return p


class GaussNewtonModel(QuadraticModel):
    """|r + R p|^2 / 2, by the singular values of R D^-1.

    The full step leaves out singular values that are zero up to rounding.
    """

    def __init__(self, R: Small, r: Small, D: Small, free: Indices | None) -> None:
        scaled = R / D if free is None else R[:, free] / D[free]
        least = EPS * max(scaled.shape)
        self._values = SingularValues(scaled)
        s, along = self._values.s, self._values.along(r)
        if s[-1] > least * s[0]:
            self._inverse = 1 / s
        else:
            resolved = s > least * s[0]
            self._inverse = np.where(resolved, 1 / np.where(resolved, s, 1.0), 0.0)
        super().__init__(s * s, s * along, -along * self._inverse, self._values.Vt.T, D, free)

    def solved(self, e: Small, shift: float) -> Small:
        """The step with other residuals e instead of r, and this shift."""
        along, s = self._values.along(e), self._values.s
        return self.in_variables(-along * (s / (s * s + shift) if shift else self._inverse))


class SingularValues:
    """A = U S V^T; A may be overwritten.

    A matrix with more rows than columns is made triangular first, and U is not formed, where the
    operations that this saves (four for each entry and column) take longer than a few calls.
    """

    def __init__(self, A: Small) -> None:
        self._reflectors: tuple[Small, Small] | None = None  # Q of A = Q R, as LAPACK has it
        m, n = A.shape
        if m > n and 2 * read(A.size * n) > CALL_COST:
            room = int(dgeqrf_lwork(m, n)[0])
            QR, scales, _, _ = dgeqrf(A, lwork=room, overwrite_a=1)
            self._reflectors = QR, scales
            A = np.triu(QR[:n])
        # LAPACK is called directly, as numpy's call takes twice as long for a small matrix.
        self._U, self.s, self.Vt, failed = dgesdd(A, full_matrices=0)
        if failed:
            self._U, self.s, self.Vt = np.linalg.svd(A, full_matrices=False)

    def along(self, r: Small) -> Small:
        """U^T r."""
        if self._reflectors is not None:
            rotated, _, _ = dormqr("L", "T", *self._reflectors, r[:, None], lwork=1)
            r = rotated[: len(self.s), 0]
        return np.asarray(r.dot(self._U))


def length_of(u: Small) -> float:
    """The Euclidean norm; for few entries, numpy's reductions take three times as long."""
    square = u.dot(u)
    return math.sqrt(square) if square < math.inf else float(dnrm2(u))  # that does not overflow


def without_zeros(u: Small) -> Small:
    """`u` with ones instead of entries that are not positive; usually all are."""
    return u if u[u.argmin()] > 0 else np.where(u > 0, u, 1.0)


def within(
    w: Small, c: Small, full: Small | None, radius: float, guess: float
) -> tuple[Small, float, float]:
    """The minimum within the radius: q, the shift, and |q|."""
    if full is not None:
        length = length_of(full)
        if length <= (1 + INEXACT) * radius:
            return full, 0.0, length
    low = max(0.0, -float(w.min()))
    high = low + length_of(c) / radius
    if not low < high < math.inf:
        return np.zeros_like(c), low, 0.0
    shift = guess if low < guess < high else low + max(LEAST_SHARE * (high - low), EPS * low)
    for _ in range(MAX_TRIALS):
        shifted = w + shift
        q = -c / shifted
        length = length_of(q)
        excess = length - radius
        if abs(excess) <= INEXACT * radius:
            break
        low, high = (shift, high) if excess > 0 else (low, shift)
        slope = float(q.dot(q / shifted)) / length if length else 0.0
        shift = shift + excess / radius * length / slope if slope > 0 else high
        if not low < shift < high:
            shift = max(LEAST_SHARE * high, math.sqrt(low * high))
        if not low < shift < high:
            shift = (low + high) / 2
    return q, shift, length
