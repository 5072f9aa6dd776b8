"""What a run has learned of the curvature: a limited-memory BFGS model.

It is made of pairs (s, y) with y = H s: from every basis, along the eigenvectors of H_bar (they are
conjugate, so that all of the basis goes into the model), and from every step, with the difference
of the gradients. It serves twice: as the preconditioner of the next Krylov space, and, as long as
that is worthwhile, in place of that space, for steps that cost no product.

The pairs are in one array, and the inverse is applied in the compact form of Byrd, Nocedal and
Schnabel (1994): two products with that array, and some with small matrices between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ksdmin._ksd.factor import Factor, eigenvectors
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis
from ksdmin._ksd.precond import Preconditioner, by_inverse
from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.entries import Entries
from ksdmin._problem.values import changed

ROWS_AT_ONCE = 8


def _nothing() -> Small:
    return np.zeros((2, 0, 0))


@dataclass(frozen=True)
class QuasiNewton:
    """The model: a positive definite matrix P that agrees with the last pairs, P s = y.

    Attributes
    ----------
    capacity : int
        How many pairs are kept; the oldest go first.
    pairs : Entries or None
        The pairs (s, y), the oldest first, each scaled so that s^T y = 1.
    products : ndarray
        With the s as the rows of S, the y as those of Y, and R the upper triangle of S Y^T: R^-1
        and Y Y^T. Both are kept up to date, a column at a time.
    base : Factor or None
        The curvature matrix that the pairs change, where a step computed one.
    """

    capacity: int
    pairs: Entries | None = None
    products: Small = field(default_factory=_nothing)
    base: Factor | None = None

    def __len__(self) -> int:
        """How many pairs there are."""
        return int(self.products.shape[1])

    def preconditioner(self, space: Space, D: Array | None = None) -> Preconditioner:
        """P, which starts from the base, the diagonal D, or a multiple of the identity."""
        if self.base is not None:
            return by_inverse(_InverseFromBase(space, self.pairs, self.base))
        if self.pairs is None:
            return Preconditioner.diagonal(D)
        if D is None:
            return by_inverse(_Inverse(space, self.pairs.array, self.products))
        R_inverse = space.to_device(self.products[0])
        return by_inverse(_ScaledInverse(space, self.pairs.array, R_inverse, D))

    def beyond(self, space: Space, z: Array) -> tuple[Array, int]:
        """What of `z` lies outside the span of all s, and how many dimensions are outside.

        A base has seen all.
        """
        if self.base is not None:
            return z, 0
        if self.pairs is None:
            return z, space.n
        S = self.pairs.array[:, 0, :]
        gram, along = space.to_host(space.gram(S, S), space.inner(S, z))
        lengths = np.diag(gram) ** 0.5
        values, E = eigenvectors(gram / np.outer(lengths, lengths))
        seen = values > MIN_REMAINDER * space.eps * values[-1]
        shares = E[:, seen] @ ((E[:, seen].T @ (along / lengths)) / values[seen])
        return z - space.combine(S, shares / lengths), max(0, space.n - int(seen.sum()))

    def without_base(self) -> QuasiNewton:
        """The model of the pairs alone."""
        return self if self.base is None else changed(self, base=None)

    def restricted(self, space: Space, free: Callable[[Array], Array]) -> QuasiNewton:
        """The model of the free variables alone, the others being held."""
        if self.pairs is None:
            return self
        return QuasiNewton(self.capacity).with_pairs(space, free(self.pairs.array))

    def with_pair(self, space: Space, s: Array, y: Array) -> QuasiNewton:
        """The model after one more pair, unless the curvature along it is not positive."""
        if not self.capacity:
            return self
        inner = space.inner
        with np.errstate(all="ignore"):  # what is not finite is left out
            along, s2, y2 = space.floats(inner(s, y), inner(s, s), inner(y, y))
        if not along > (space.eps * s2 * y2) ** 0.5 or not 0 < y2 < math.inf:
            return self
        return self._with_scaled(space, space.scaled_pair(s, y, along**-0.5))

    def with_pairs(self, space: Space, pairs: Array) -> QuasiNewton:
        """The model after more pairs (s, y), in an array, where they are any good."""
        with np.errstate(all="ignore"):
            (dots,) = space.to_host(space.gram(pairs, pairs))
            s2, along, y2 = dots[:, 0, 0], dots[:, 0, 1], dots[:, 1, 1]
            good = (along > (space.eps * s2 * y2) ** 0.5) & (0 < y2) & (y2 < np.inf)
        if not good.all():
            which = np.flatnonzero(good)
            if not len(which):
                return self
            pairs, along = space.xp.stack([pairs[int(i), :, :] for i in which]), along[which]
        pairs *= space.to_device(along**-0.5)[:, None, None]  # our own array (jax makes a new one)
        return self._with_scaled(space, pairs)

    def _with_scaled(self, space: Space, new: Array) -> QuasiNewton:
        """The model after pairs that are scaled as ours are."""
        count = int(new.shape[0])
        keep = min(self.capacity, len(self) + count)
        new = new if count <= keep else new[count - keep :, :, :]
        pairs = Entries(space.rows(0, 2)) if self.pairs is None else self.pairs
        pairs = pairs.followed_by(space, new, keep, self.capacity)
        (columns,) = space.to_host(space.gram(_vectors(space, pairs.array), new[:, 1, :]))
        return changed(self, pairs=pairs, products=_bordered(self.products, columns))

    def with_basis(
        self, space: Space, basis: Basis, step: tuple[Array, Array] | None = None
    ) -> QuasiNewton:
        """The model after a basis, and after the pair of the step that was found in it, if any.

        The directions of least curvature count most, and come last. A whole matrix replaces all
        that was known before; where products were less work, an older one is out of date.
        """
        if not self.capacity:
            return self
        model, directions, products = self, np.zeros((0, basis.dim)), basis.products
        if basis.factor is not None:
            model = QuasiNewton(self.capacity, base=basis.factor)
        elif products is not None:
            directions = _directions(space, basis.H_bar, self.capacity - (step is not None))
        if products is None or not len(directions):
            return model if step is None else model.with_pair(space, *step)
        new = space.rows(len(directions) + (step is not None), 2)
        for at in range(0, len(directions), ROWS_AT_ONCE):  # what is in passing takes little memory
            E = directions[at : at + ROWS_AT_ONCE]
            rows = slice(at, at + len(E))
            new = space.put(new, (rows, 0, slice(None)), space.times(space.to_device(E), basis.V))
            new = space.put(new, (rows, 1, slice(None)), products(E))
        if step is not None:
            for i, vector in enumerate(step):
                new = space.put(new, (len(directions), i, slice(None)), vector)
        return model.without_base().with_pairs(space, new)


def _directions(space: Space, H_bar: Small, most: int) -> Small:
    """Its eigenvectors of the least positive curvature as rows, the very least last."""
    if not len(H_bar):
        return H_bar
    values, E = eigenvectors(H_bar)
    least = MIN_REMAINDER * space.eps * max(abs(values[0]), abs(values[-1]))
    first = int(values.searchsorted(least, side="right"))
    return np.array(E[:, first : first + most][:, ::-1].T, order="C")


class _Inverse:
    """w -> P^-1 w, from a multiple of the identity: that of the last pair."""

    def __init__(self, space: Space, pairs: Array, products: Small) -> None:
        self._space, self._vectors = space, _vectors(space, pairs)
        on_device = space.to_device(products)
        self._R_inverse, self._YY = on_device[0], on_device[1]
        self._scale = 1.0 / float(products[1, -1, -1])

    def __call__(self, w: Array) -> Array:
        times, R_inverse, scale = self._space.times, self._R_inverse, self._scale
        found = self._space.inner(self._vectors, w)
        p = times(R_inverse, found[0::2])
        q = times(p + scale * (times(self._YY, p) - found[1::2]), R_inverse)
        return scale * w + times(self._space.interleaved(q, -scale * p), self._vectors)


class _ScaledInverse:
    """The same from a diagonal D."""

    def __init__(self, space: Space, pairs: Array, R_inverse: Array, D: Array) -> None:
        self._inner, self._D = space.inner, D
        self._S, self._Y = pairs[:, 0, :], pairs[:, 1, :]
        self._R_inverse, self._YY = R_inverse, space.gram(self._Y / D, self._Y)

    def __call__(self, w: Array) -> Array:
        scaled = w / self._D
        p = self._R_inverse @ self._inner(self._S, w)
        q = (p + self._YY @ p - self._inner(self._Y, scaled)) @ self._R_inverse
        return scaled + q @ self._S - (p @ self._Y) / self._D


class _InverseFromBase:
    """The same from a factorised matrix, by the two loops of Nocedal: the pairs are few."""

    def __init__(self, space: Space, pairs: Entries | None, base: Factor) -> None:
        known: Array = None if pairs is None else pairs.array
        count = 0 if known is None else int(known.shape[0])
        self._pairs = [(known[i, 0, :], known[i, 1, :]) for i in range(count)]
        self._inner, self._base = space.inner, base

    def __call__(self, w: Array) -> Array:
        shares = []
        for s, y in reversed(self._pairs):
            shares.append(self._inner(s, w))
            w = w - shares[-1] * y
        w = self._base.solve(w)
        for (s, y), share in zip(self._pairs, reversed(shares), strict=True):
            w = w + (share - self._inner(y, w)) * s
        return w


def _vectors(space: Space, pairs: Array) -> Array:
    """The vectors of all pairs as rows: s, y, s, y, ..."""
    shape = 2 * pairs.shape[0], pairs.shape[2]
    return pairs.reshape(shape) if space.numpy else space.xp.reshape(pairs, shape)


def _bordered(old: Small, columns: Small) -> Small:
    """R^-1 and Y Y^T for all pairs, from those of the old ones.

    `columns` are the products of all vectors with the y of the new pairs.
    """
    kept, new = columns.shape[0] // 2, columns.shape[1]
    rest, gone = kept - new, old.shape[1] - kept + new
    out = np.zeros((2, kept, kept))
    out[:, :rest, :rest] = old[:, gone:, gone:]
    R_inverse, YY = out[0], out[1]
    for j in range(rest, kept):  # of s^T y = 1, R has ones on its diagonal
        R_inverse[:j, j] = R_inverse[:j, :j].dot(-columns[0 : 2 * j : 2, j - rest])
        R_inverse[j, j] = 1.0
    YY[:, rest:] = columns[1::2]
    YY[rest:, :rest] = columns[1 : 2 * rest : 2].T
    return out
