"""What a run has learned of the curvature: a limited-memory BFGS model.

It is made of pairs (s, y) with y = H s: from every basis, along the eigenvectors of H_bar (they are
conjugate, so that the whole basis goes into the model), and from every step, with the difference
of the gradients. It has two uses: as the preconditioner of the next Krylov space, and for steps
without products, as long as these are worthwhile.

The inverse is applied as in the two loops of Nocedal (1980), but with matrices: each loop solves
equations with the triangle R of all s^T y, whose inverse is kept (Byrd, Nocedal and Schnabel,
1994). So there are two products with all s and two with all y, and little between them. If the
curvature along a pair has changed by a factor (`Drift`), one number between them is divided by it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator

from ksdmin._ksd.factor import Factor, eigenvectors
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis
from ksdmin._ksd.precond import IDENTITY, Preconditioner
from ksdmin._problem.arrays import EPS, Array, Entries, Small, Space
from ksdmin._problem.user_values import counted
from ksdmin._problem.values import changed


@dataclass(frozen=True)
class Drift:
    """By how much the curvature along old pairs has changed since it was measured.

    Problem: the pairs (s_i, y_i) were measured at earlier points. If the curvature falls along the
    way, as in a regression that fits its samples better and better, old pairs keep steps short.
    Then more pairs take more passes, not fewer.

    Algorithm: a new pair (s, y) is scaled so that s^T y = 1, as all pairs are. If the curvature H
    had not changed, s_i^T y and y_i^T s would both be s_i^T H s. The first, a, is measured; the
    second, b, is expected. The factor f should make f b equal to a, but stay at 1 if the step has
    nothing to do with the pair: minimising (f b - a)^2 + (f - 1)^2 gives (1 + a b) / (1 + b^2). A
    step knows one direction only. So two in a row have to agree: f is the median of both and 1.
    """

    # What the curvature along each pair is multiplied with by now, the oldest first.
    factors: Small = field(default_factory=lambda: np.ones(0))
    last: Small = field(default_factory=lambda: np.ones(0))  # those of the last step alone

    def after_step(self, measured: Small, expected: Small) -> Drift:
        """After the pair (s, y) of a step, with all s_i^T y and y_i^T s of the pairs that stay."""
        gone = len(self.factors) - len(measured)
        factors, last = self.factors[gone:], self.last[gone:]
        with np.errstate(all="ignore"):  # without what is not finite
            seen = (1 + measured * expected) / (1 + factors * expected**2)
        seen = np.where((seen > 0) & np.isfinite(seen), seen, 1.0)
        factors = np.clip(factors * _median(seen, last), EPS, 1 / EPS)
        return Drift(np.append(factors, 1.0), np.append(seen, 1.0))

    def after_basis(self, new: int, kept: int) -> Drift:
        """After so many new pairs of a basis, with `kept` of the old pairs left."""
        factors = np.concatenate([self.factors, np.ones(new)])[-kept:]
        return Drift(factors, np.ones(kept))


def _median(u: Small, w: Small) -> Small:
    """The median of u, w and 1, for each entry; numpy's takes ten times as long."""
    return np.maximum(np.minimum(u, w), np.minimum(np.maximum(u, w), 1.0))


@dataclass(frozen=True)
class Solved:
    """u = P^-1 g of a gradient g, and the slope g^T u, where they came with the last pair.

    P starts from the diagonal D, or from the identity: None.
    """

    g: Array
    D: Array | None
    u: Array
    slope: float


class PairProducts(NamedTuple):
    """The pair of a step, and all that the model has to know of it."""

    # s^T s, s^T y and y^T y.
    s2: float
    along: float
    y2: float
    scaled: Array  # s and y, (2, 1, n), scaled so that s^T y = 1
    columns: Small  # so scaled, all s^T y with the new y, of the pairs that stay and of itself
    solved: Solved  # the direction of the model with it


@dataclass(frozen=True)
class QuasiNewton:
    """The model: a positive definite matrix P that agrees with the last pairs, P s = y."""

    capacity: int  # how many pairs are kept; the oldest go first
    # All s, and all y, as rows, the oldest first; each pair is scaled so that s^T y = 1.
    pairs: Entries | None = None
    # With the s as the rows of S, the y as those of Y, and R the upper triangle of S Y^T: R^-1.
    R_inverse: Small = field(default_factory=lambda: np.zeros((0, 0)))
    scale: float = 1.0  # 1 / y^T y of the last pair
    # The curvature matrix that the pairs change, where a step computed one.
    base: Factor | None = None
    older: int = 0  # how many of the pairs are older than the base: they serve without it only
    # How the curvature along the pairs has changed since; None: that is not looked at.
    drift: Drift | None = None
    # What the model says at the end of the last step, where that came with its pair.
    solved: Solved | None = None

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.R_inverse)

    def preconditioner(self, space: Space, first: Preconditioner = IDENTITY) -> Preconditioner:
        """P, built on the base, or on a multiple of the matrix `first`."""
        if self.pairs is None and self.base is None:
            return first
        return Preconditioner(self.inverse(space, first))

    def inverse(self, space: Space, first: Preconditioner) -> Callable[[Array], Array]:
        """w -> P^-1 w; `first` is scaled by the last pair."""
        if self.pairs is None:
            return first.solve if self.base is None else self.base.solve
        if self.base is not None and self.older == len(self):
            return self.base.solve
        pairs, R_inverse = self.pairs.array, self.R_inverse
        factors = None if self.drift is None else self.drift.factors
        if self.older:
            pairs = pairs[:, self.older :, :]
            R_inverse = np.ascontiguousarray(R_inverse[self.older :, self.older :])
            factors = None if factors is None else factors[self.older :]
        start: Callable[[Array], Array]
        if self.base is not None:
            start = self.base.solve
        elif first.is_identity:
            start = partial(operator.mul, self.scale)
        else:
            start = scaled_by_pair(space, pairs, first).solve
        return Inverse(space, pairs, space.to_device(R_inverse), start, factors)

    def steepest(self, space: Space) -> float:
        """The largest curvature that is known: along an axis of the base, or along a pair."""
        if self.base is not None:
            return self.base.steepest
        if self.pairs is None:
            return 0.0
        Y = self.pairs.array[1, :, :]
        return float(space.to_host(space.gram(Y, Y))[0].diagonal().max())

    def beyond(self, space: Space, z: Array) -> tuple[Array, int]:
        """The part of `z` outside the span of all s, and the number of dimensions outside.

        A base covers all.
        """
        if self.base is not None:
            return z, 0
        if self.pairs is None:
            return z, space.n
        S = self.pairs.array[0, :, :]
        gram, along = space.to_host(space.gram(S, S), space.inner(S, z))
        lengths = np.diag(gram) ** 0.5
        values, E = eigenvectors(gram / np.outer(lengths, lengths))
        seen = values > MIN_REMAINDER * space.eps * values[-1]
        shares = E[:, seen] @ ((E[:, seen].T @ (along / lengths)) / values[seen])
        return z - space.combine(S, shares / lengths), max(0, space.n - int(seen.sum()))

    def without_base(self) -> QuasiNewton:
        """The model of the pairs alone."""
        return self if self.base is None else changed(self, base=None, older=0)

    def restricted(self, space: Space, free: Callable[[Array], Array]) -> QuasiNewton:
        """The model of the free variables alone."""
        if self.pairs is None:
            return self
        pairs = free(self.pairs.array)
        if self.drift is not None:
            factors = np.stack([np.ones(len(self)), self.drift.factors])
            pairs = pairs * space.to_device(factors)[:, :, None]
        return QuasiNewton(self.capacity).with_pairs(space, pairs)

    def with_pair(self, space: Space, s: Array, y: Array) -> QuasiNewton:
        """The model after one more pair; unchanged if the curvature along it is not positive."""
        if not self.capacity:
            return self
        along, s2, y2 = space.products_of_pair(s, y)
        if not _is_resolved(space.eps, s2, along, y2):
            return self
        return self._with_scaled(space, space.scaled_pair(s, y, along**-0.5), along / y2)

    def with_products(self, space: Space, pair: PairProducts) -> QuasiNewton:
        """The same for a pair whose products are known."""
        if not _is_resolved(space.eps, pair.s2, pair.along, pair.y2):
            return self
        model = self._with_scaled(space, pair.scaled, pair.along / pair.y2, pair.columns)
        return changed(model, solved=pair.solved)

    def with_pairs(self, space: Space, pairs: Array) -> QuasiNewton:
        """The model after more pairs (all s, all y), without those that are not positive."""
        with np.errstate(all="ignore"):
            each = space.xp.permute_dims(pairs, (1, 0, 2))
            (grams,) = space.to_host(space.gram(each, each))
        dots = [(s2, along, y2) for (s2, along), (_, y2) in grams.tolist()]
        good = [i for i, known in enumerate(dots) if _is_resolved(space.eps, *known)]
        if not good:
            return self
        if len(good) < len(dots):
            pairs = space.xp.stack([pairs[:, i, :] for i in good], axis=1)
        along = np.array([dots[i][1] for i in good])
        pairs *= space.to_device(along**-0.5)[None, :, None]  # our own array (jax makes a new one)
        return self._with_scaled(space, pairs, dots[good[-1]][1] / dots[good[-1]][2])

    def _with_scaled(
        self, space: Space, new: Array, scale: float, columns: Small | None = None
    ) -> QuasiNewton:
        """The model after pairs that are scaled already, with the `scale` of the last one.

        Their `columns` of R may be known already, if the model does not follow a drift.
        """
        before, count = len(self.R_inverse), int(new.shape[1])
        keep = min(self.capacity, before + count)
        new = new if count <= keep else new[:, count - keep :, :]
        pairs = Entries(space.rows(2, 0)) if self.pairs is None else self.pairs
        pairs, drift = pairs.followed_by(space, new, keep, self.capacity), None
        if columns is None:
            columns, drift = self._columns(space, pairs.array, new)
        return changed(
            self,
            pairs=pairs,
            R_inverse=_bordered(self.R_inverse, columns),
            older=max(0, self.older + keep - before - count),
            scale=scale,
            drift=drift,
            solved=None,
        )

    def _columns(self, space: Space, pairs: Array, new: Array) -> tuple[Small, Drift | None]:
        """All s^T y with the `new` y, the last ones of `pairs`; and the drift that they show."""
        columns = space.gram(pairs[0, :, :], new[1, :, :])
        if self.drift is None:
            return space.to_host(columns)[0], None
        if new.shape[1] == 1:  # of a step
            expected = space.inner(pairs[1, :-1, :], new[0, 0, :])
            measured, known = space.to_host(columns, expected)
            return measured, self.drift.after_step(measured[:-1, 0], known)
        (measured,) = space.to_host(columns)
        return measured, self.drift.after_basis(new.shape[1], len(measured))

    def with_basis(
        self, space: Space, basis: Basis, step: tuple[Array, Array] | None = None
    ) -> QuasiNewton:
        """The model after a basis, and after the pair of the step found in it, if any.

        The directions of least curvature matter most, and come last. A whole matrix replaces all
        that was known before, as long as it serves. If products were less work, an older matrix is
        out of date.
        """
        if not self.capacity:
            return self
        model, directions, products = self, np.zeros((0, basis.dim)), basis.products
        if basis.factor is not None:
            model = changed(self, base=basis.factor, older=len(self), solved=None)
        elif products is not None:
            directions = _directions(space, basis.H_bar, self.capacity - (step is not None))
        if products is None or not len(directions):
            return model if step is None else model.with_pair(space, *step)
        new = space.rows(2, len(directions) + (step is not None))
        some = math.isqrt(len(directions))  # temporary arrays take little memory
        for at in range(0, len(directions), some):
            E = directions[at : at + some]
            rows = slice(at, at + len(E))
            new = space.put(new, (0, rows, slice(None)), space.times(space.to_device(E), basis.V))
            new = space.put(new, (1, rows, slice(None)), products(E))
        if step is not None:
            for i, vector in enumerate(step):
                new = space.put(new, (i, len(directions), slice(None)), vector)
        return model.without_base().with_pairs(space, new)


def _is_resolved(eps: float, s2: float, along: float, y2: float) -> bool:
    """Whether the curvature along s is positive beyond rounding, from s^T s, s^T y and y^T y."""
    return along > (eps * s2 * y2) ** 0.5 and 0 < y2 < math.inf


def _directions(space: Space, H_bar: Small, most: int) -> Small:
    """The basis's eigenvectors of least positive curvature as rows, the least last."""
    if not len(H_bar):
        return H_bar
    values, E = eigenvectors(H_bar)
    least = MIN_REMAINDER * space.eps * max(abs(values[0]), abs(values[-1]))
    first = int(values.searchsorted(least, side="right"))
    return np.array(E[:, first : first + most][:, ::-1].T, order="C")


def scaled_by_pair(space: Space, pairs: Array, P: Preconditioner) -> Preconditioner:
    """P scaled by the last pair."""
    last = pairs[1, -1, :]
    return P.scaled(space.inner(P.solve(last), last))


class Inverse:
    """w -> P^-1 w, from the inverse of the matrix that P is built on."""

    def __init__(
        self,
        space: Space,
        pairs: Array,
        R_inverse: Array,
        start: Callable[[Array], Array],
        factors: Small | None = None,
    ) -> None:
        self._inner, self._times, self._start = space.inner, space.times, start
        self._S, self._Y, self._R_inverse = pairs[0, :, :], pairs[1, :, :], R_inverse
        self._factors = None if factors is None else space.to_device(factors)

    def __call__(self, w: Array) -> Array:
        inner, times, S, Y = self._inner, self._times, self._S, self._Y
        p = times(self._R_inverse, inner(S, w))
        u = self._start(w - times(p, Y))
        if self._factors is not None:  # as if each y were multiplied by its factor
            p = p / self._factors
        return u + times(times(p - inner(Y, u), self._R_inverse), S)


def _bordered(old: Small, columns: Small) -> Small:
    """R^-1 for all pairs, from R^-1 of the old ones and the new `columns` S y of R."""
    kept, new = columns.shape
    rest, gone = kept - new, len(old) - kept + new
    R_inverse = np.zeros((kept, kept))
    R_inverse[:rest, :rest] = old[gone:, gone:]
    for j in range(rest, kept):  # s^T y = 1, so R has ones on its diagonal
        R_inverse[:, j] = R_inverse.dot(-columns[:, j - rest])
        R_inverse[j, j] = 1.0
    return R_inverse


class InverseHessian(LinearOperator):  # type: ignore[misc]
    """`res.hess_inv`, the inverse of the model: rough, except along the last steps.

    Like SciPy's ``LbfgsInvHessProduct``, with ``todense``; but outside the span of its pairs it is
    scaled by the last one. Nothing is computed until it is used.
    """

    def __init__(self, model: QuasiNewton, space: Space) -> None:  # with a base, or pairs
        super().__init__(np.dtype(np.float64), (space.n, space.n))
        self._model, self._space = model, space

    def __repr__(self) -> str:
        n, pairs = self.shape[0], counted(self.n_corrs, "curvature pair")
        return (
            f"<{n} x {n} InverseHessian: a rough approximation from {pairs} of the run. For "
            "standard errors take ksdmin.covariance(res)>"
        )

    @property
    def n_corrs(self) -> int:
        """How many pairs it is made of."""
        return len(self._model) - self._model.older

    def _matvec(self, v: Any) -> Small:
        return np.asarray(self._solve(np.asarray(v, dtype=np.float64).reshape(-1)))

    @cached_property
    def _solve(self) -> Callable[[Small], Small]:
        return self._model.preconditioner(self._space).solve

    def _adjoint(self) -> InverseHessian:
        return self

    def todense(self) -> Small:
        """The matrix, (n, n)."""
        return np.stack([self._matvec(unit) for unit in np.eye(self.shape[0])])
