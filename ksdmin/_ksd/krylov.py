"""Algorithm 2: a basis for the Krylov subspace, and the curvature within it.

The subspace is spanned by (D^-1 H)^k D^-1 g, 0 <= k < K, and the previous search directions.
Letters as in the paper, but a basis vector is a row of V, so that it is contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ksdmin._ksd.factor import Factor
from ksdmin._problem.arrays import Array, Small, Space

# A vector is dropped when orthogonalisation leaves less of it than this many roundings: what
# is left is noise (the space is exhausted, or the vector lies in the span already).
MIN_REMAINDER = 100


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis and the model within it.

    Attributes
    ----------
    V : array
        The basis vectors, one per row.
    HV : array or None
        Their products, one per row, where they were to be kept.
    H_bar, g_bar : ndarray
        V^T H V and V^T g.
    asymmetry : float
        The largest |v_j^T H v_k - v_k^T H v_j| seen, relative to the largest entry of H_bar.
    finite : bool
        False where a product was not finite and the construction ended there.
    measured : bool
        False where H_bar is a model's, and cost no product.
    full : bool
        Whether the Krylov part has as many vectors as it may.
    exact : bool
        Whether it is made of the whole curvature matrix, not of products.
    factor : Factor or None
        That matrix, factorised, where it is positive definite and was to be kept.
    """

    V: Array
    H_bar: Small
    g_bar: Small
    asymmetry: float = 0.0
    finite: bool = True
    HV: Array | None = None
    measured: bool = True
    full: bool = False
    exact: bool = False
    factor: Factor | None = None

    @property
    def dim(self) -> int:
        """The number of basis vectors."""
        return len(self.g_bar)

    @property
    def newton_decrease(self) -> float:
        """The reduction that the quadratic model predicts for its own Newton step."""
        return float(self.g_bar @ np.linalg.lstsq(self.H_bar, self.g_bar)[0]) / 2

    def decrease(self, c: Small) -> float:
        """The reduction that the quadratic model predicts for the step V c."""
        return -float(self.g_bar @ c + c @ self.H_bar @ c / 2)


def krylov_basis(
    space: Space,
    g: Array,
    precondition: Callable[[Array], Array],
    product: Callable[[Array], Array],
    d_prev: Sequence[Array],
    K: int,
    enough: Callable[[Growth], bool],
    *,
    ahead: bool = False,
    keep: bool = False,
) -> Basis:
    """Construct the basis V and the curvature H_bar in its co-ordinates (Algorithm 2).

    Parameters
    ----------
    space : Space
        Where the vectors live.
    g : array
        The gradient.
    precondition : callable
        w -> D^-1 w.
    product : callable
        v -> Hv, called once for each basis vector: at most K + len(d_prev) times.
    d_prev : sequence of arrays
        The previous search directions, adjoined after the Krylov vectors.
    K : int
        The largest dimension of the Krylov part.
    enough : callable
        Asked after each product; True ends the Krylov part before K.
    ahead : bool
        Ask for each product before the result of the last one reaches the host, so that a device
        need not wait for it. One product may then be wasted, where the space is exhausted
        or `enough` says so.
    keep : bool
        Keep the products.

    Returns
    -------
    Basis
        Vectors whose remainder vanishes are left out, so that it may be smaller than asked for
        (empty where g and all of d_prev are zero).
    """
    K = min(K, space.n)
    growth = Growth(space, g, K + len(d_prev), keep)
    found = growth.propose(precondition(g))  # Alg. 2, lines 1 and 2
    while found:
        last = growth.dim + 1 == K
        found = growth.measure(product, None if last else precondition, ahead)  # lines 4 to 15
        if found and enough(growth):
            break
    full = growth.dim == K
    for d in d_prev:  # line 8
        if growth.finite and growth.propose(d):
            growth.measure(product)
    return growth.basis(full)


class Growth:
    """A basis that grows: a vector is proposed, and measured by one product.

    Attributes
    ----------
    dim : int
        The number of vectors measured; one that is only proposed waits in the next row.
    w : array
        The last product.
    finite : bool
        Whether all products were finite.
    """

    def __init__(self, space: Space, g: Array, capacity: int, keep: bool = False) -> None:
        self.dim = 0
        self.w: Array = None
        self.finite = True
        self._ahead: Array = None  # the product of the vector that waits, where asked for already
        self._space, self._g = space, g
        self._V = space.rows(capacity)
        self._HV = space.rows(capacity) if keep else None
        self._H_bar = np.zeros((capacity, capacity))
        self._g_bar = np.zeros(capacity)
        self._U = np.zeros((capacity + 1, capacity + 1))  # how each proposal was made up
        self._across = 0.0  # w_k^T v_(k+1), which w_(k+1)^T v_k should equal
        self._gap = 0.0

    @property
    def H_bar(self) -> Small:
        """The curvature within the vectors measured."""
        return self._H_bar[: self.dim, : self.dim]

    @property
    def g_bar(self) -> Small:
        """The gradient within the vectors measured."""
        return self._g_bar[: self.dim]

    def propose(self, u: Array) -> bool:
        """Orthogonalise `u` against the basis; False where nothing of it remains."""
        self._ahead = None
        u, scale = self._within_range(u) if self.dim == 0 else (u, 1.0)
        parts = self._write(u, self.dim)
        return self._take_in(self._space.to_host(*parts), scale)

    def measure(
        self,
        product: Callable[[Array], Array],
        follow: Callable[[Array], Array] | None = None,
        ahead: bool = False,
    ) -> bool:
        """Multiply the proposed vector and take it in; then propose ``follow(w)``, if given.

        Both take one transfer from the device; with `ahead`, the product of the new proposal is
        asked for before that arrives. Returns whether a proposal waits: False where the product
        is not finite, too.
        """
        k = self.dim
        v = self._V[k, :]
        self.w, self._ahead = product(v) if self._ahead is None else self._ahead, None
        with np.errstate(all="ignore"):  # a product that is not finite is noticed below
            parts = (self._V[: k + 1, :] @ self.w, v @ self._g)
            if follow is not None:
                parts += self._write(follow(self.w), k + 1)
        numbers = self._space.to_host_async(*parts)
        if ahead and follow is not None:
            self._ahead = product(self._V[k + 1, :])
        h, slope, *found = numbers()
        if not np.isfinite(h).all():
            self.finite = False
            return False
        if k:
            self._gap = max(self._gap, abs(self._across - h[k - 1]))
        self._H_bar[k, : k + 1] = self._H_bar[: k + 1, k] = h
        self._g_bar[k] = slope
        if self._HV is not None:
            self._HV = self._space.put(self._HV, (k, slice(None)), self.w)
        self.dim = k + 1
        return follow is not None and self._take_in(found)

    def _write(self, u: Array, k: int) -> tuple[Array, ...]:
        """Put what Gram-Schmidt, twice, leaves of `u` into row k.

        Returns what it found, still on the device.
        """
        found: tuple[Array, ...] = ()
        if k:
            V = self._V[:k, :]
            c = V @ u
            u = u - c @ V
            again = V @ u
            u = u - again @ V
            found = (self.w @ u, c + again)
        squared = u @ u
        with np.errstate(all="ignore"):  # where nothing is left, the row is never read
            self._V = self._space.put(self._V, (k, slice(None)), u / squared**0.5)
        return squared, *found

    def _take_in(self, found: list[Small], scale: float = 1.0) -> bool:
        """Note how row k was made up, unless it has vanished."""
        k, norm, c = self.dim, float(found[0]) ** 0.5, found[-1] if self.dim else np.zeros(0)
        before = math.hypot(norm, np.linalg.norm(c))  # the length of what was proposed
        if not norm > MIN_REMAINDER * self._space.eps * before:
            return False
        if k:
            self._across = float(found[1]) / norm
            self._U[:k, k] = c
        self._U[k, k] = norm * scale
        return True

    def _within_range(self, u: Array) -> tuple[Array, float]:
        """`u`, and what it was divided by lest the square of its norm underflow or overflow."""
        if 1e-30 < float(u @ u) < 1e30:
            return u, 1.0
        largest = self._space.max_abs(u)
        return (u / largest, largest) if 0 < largest < np.inf else (u, 1.0)

    def residual(self, c: Small) -> float:
        """|D^-1 (g + H V c)| / |D^-1 g|, from what is at hand.

        As long as the proposals are Krylov vectors, D^-1 H v_k lies in the span of the first
        k + 1 of them, with the coefficients that the orthogonalisation found.
        """
        k, beta = self.dim, self._U[0, 0]
        r = self._U[: k + 1, 1 : k + 1] @ c
        r[0] += beta
        return float(np.linalg.norm(r)) / float(beta)

    def basis(self, full: bool = False) -> Basis:
        """What has been measured."""
        largest = float(np.abs(self.H_bar).max(initial=0.0))
        gap = self._gap / largest if largest else 0.0
        V, HV = self._V[: self.dim, :], None if self._HV is None else self._HV[: self.dim, :]
        return Basis(V, self.H_bar, self.g_bar, gap, self.finite, HV, full=full)
