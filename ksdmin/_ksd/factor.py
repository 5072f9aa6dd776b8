"""A factorised curvature matrix, which further steps use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from ksdmin._problem.arrays import Array, Small, Space, to_host


@dataclass(frozen=True)
class Factor:
    """H = S^-1 L L^T S^-1, positive definite.

    It is kept in the user's namespace, as all of a run's state is; the host solves with it.
    """

    lower: Array  # L, lower triangular; what stands above the diagonal does not count
    scale: Array  # the diagonal of S

    @property
    def steepest(self) -> float:
        """The largest entry on the diagonal of H."""
        lower, scale = _on_host(self.lower), _on_host(self.scale)
        rows = np.tril(lower) / scale[:, None]
        return float((rows * rows).sum(axis=1).max())

    def solve(self, q: Array) -> Array:
        """H^-1 q."""
        lower, scale = _on_host(self.lower), _on_host(self.scale)
        known = _on_host(q)
        solved: Small = scale * lapack.dpotrs(lower, scale * known, lower=1)[0]
        return solved if known is q else Space(q).to_device(solved)


def cholesky(H: Small, least: float) -> Small | None:
    """The lower factor of H; None if H is indefinite, or its condition number is above 1 / least.

    Entries above the diagonal of the factor do not count.
    """
    lower, failed = lapack.dpotrf(H, lower=1, clean=0)
    if failed:
        return None
    inverse_condition, _ = lapack.dpocon(lower, lapack.dlange("1", H), uplo="L")
    return lower if inverse_condition > least else None


def eigenvectors(H: Small) -> tuple[Small, Small]:
    """The eigenvalues of a symmetric H, in ascending order, and its eigenvectors as columns.

    LAPACK's routine itself: for a small matrix ``numpy.linalg.eigh``, which calls it, too, takes
    five times as long.
    """
    values, E, failed = lapack.dsyevd(H, lower=1)
    if failed:
        raise np.linalg.LinAlgError("the eigenvalues of the curvature did not converge")
    return values, np.ascontiguousarray(E)


def largest_entry(H: Small) -> float:
    """The largest magnitude of an entry; 0 if there is none."""
    return float(lapack.dlange("M", H)) if H.size else 0.0


def _on_host(u: Array) -> Small:
    """In float64; copied only if the dtype differs."""
    return u if isinstance(u, np.ndarray) and u.dtype == np.float64 else to_host(u)
