"""What a run has learned of the curvature: a limited-memory BFGS model.

It is made of pairs (s, y) with y = H s: from every basis, along the eigenvectors of H_bar (they are
conjugate, so that all of the basis goes into the model), and from every step, with the difference
of the gradients. It serves twice: as the preconditioner of the next Krylov space, and, as long as
that is worthwhile, in place of that space, for steps that cost no product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ksdmin._ksd.factor import Factor
from ksdmin._ksd.krylov import Basis
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.values import changed

MIN_CURVATURE = 1e-8  # s^T y of |s| |y|: a pair with less is left out
STALE_BELOW = 0.5  # of the model's curvature: where it is less, old pairs are dropped
MIN_EIGENVALUE = 1e-10  # of the largest: a smaller one is rounding


@dataclass(frozen=True)
class QuasiNewton:
    """The model: a positive definite matrix P that agrees with the last pairs, P s = y.

    Attributes
    ----------
    capacity : int
        How many pairs are kept; the oldest go first.
    pairs : tuple
        (s, y, 1 / s^T y), the oldest first.
    base : Factor or None
        The curvature matrix that the pairs change, where a step computed one.
    """

    capacity: int
    pairs: tuple[tuple[Array, Array, float], ...] = ()
    base: Factor | None = None

    def solve(self, g: Array, D: Array | None = None) -> Array:
        """P^-1 g (the two loops of Nocedal), from the diagonal D or a multiple of the identity."""
        if not self.pairs:
            return self._start(g, D)
        q, shares = g + 0, []  # our own: written into below (jax makes new ones)
        for s, y, rho in reversed(self.pairs):
            share = rho * (s @ q)
            shares.append(share)
            q -= share * y
        q = self._start(q, D)
        for (s, y, rho), share in zip(self.pairs, reversed(shares), strict=True):
            q += (share - rho * (y @ q)) * s
        return q

    def _start(self, q: Array, D: Array | None) -> Array:
        """What the pairs are built on: the base, the diagonal, or a multiple of the identity."""
        if self.base is not None:
            return self.base.solve(q)
        if D is not None:
            return q / D
        if not self.pairs:
            return q
        _, y, rho = self.pairs[-1]
        return q / (rho * (y @ y))

    def beyond(self, space: Space, z: Array) -> tuple[Array, int]:
        """What of `z` lies outside the span of all s, and how many dimensions are outside.

        A base has seen all.
        """
        if self.base is not None:
            return z, 0
        if not self.pairs:
            return z, space.n
        S = space.xp.stack([s / (s @ s) ** 0.5 for s, _, _ in self.pairs])
        gram, along = space.to_host(S @ S.T, S @ z)
        values, E = np.linalg.eigh(gram)
        seen = values > max(MIN_EIGENVALUE, 100 * space.eps) * values[-1]
        shares = E[:, seen] @ ((E[:, seen].T @ along) / values[seen])
        return z - space.combine(S, shares), max(0, space.n - int(seen.sum()))

    def without_base(self) -> QuasiNewton:
        """The model of the pairs alone."""
        return self if self.base is None else changed(self, base=None)

    def restricted(self, free: Callable[[Array], Array]) -> QuasiNewton:
        """The model of the free variables alone, the others being held."""
        model = QuasiNewton(self.capacity)
        for s, y, _ in self.pairs:
            model = model.with_pair(free(s), free(y))
        return model

    def with_pair(self, s: Array, y: Array) -> QuasiNewton:
        """The model after one more pair, unless the curvature along it is not positive."""
        if self.capacity == 0:
            return self
        along, s2, y2 = float(s @ y), float(s @ s), float(y @ y)
        if not along > MIN_CURVATURE * (s2 * y2) ** 0.5 or not (
            0 < s2 < np.inf and 0 < y2 < np.inf
        ):
            return self
        return changed(self, pairs=(*self.pairs, (s, y, 1 / along))[-self.capacity :])

    def with_own_step(self, s: Array, y: Array, slope: float) -> QuasiNewton:
        """The model after a step of its own, s = -P^-1 g (or near that), of slope s^T g = -s^T P s.

        Where the curvature is far less than that, the model is out of date: of more than three
        pairs the two oldest go.
        """
        model = self.with_pair(s, y)
        if float(s @ y) > -STALE_BELOW * slope or len(model.pairs) < 4:
            return model
        return changed(model, pairs=model.pairs[2:])

    def with_basis(self, space: Space, basis: Basis) -> QuasiNewton:
        """The model after a basis; the directions of least curvature count most, and come last.

        A whole matrix replaces all that was known before; where products were less work, an older
        one is out of date.
        """
        if basis.factor is not None:
            return QuasiNewton(self.capacity, base=basis.factor)
        values, E = np.linalg.eigh(basis.H_bar)
        order = [
            i for i in values.argsort()[::-1] if values[i] > MIN_EIGENVALUE * np.abs(values).max()
        ]
        order = order[-self.capacity :] if self.capacity else []
        if not order:
            return self
        turn = space.to_device(np.ascontiguousarray(E[:, order].T))
        S, Y = turn @ basis.V, turn @ basis.HV
        model = self.without_base()
        for i in range(len(order)):
            model = model.with_pair(S[i, :], Y[i, :])
        return model
