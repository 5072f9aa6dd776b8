"""Algorithm 2: a basis for the Krylov subspace, and the curvature within it.

The subspace is spanned by (P^-1 H)^k P^-1 g, 0 <= k < K, and the previous search directions; P is
the preconditioner, D in the paper. Letters as in the paper, but a basis vector is a row of V, so
that it is contiguous.

The paper orthogonalises each vector against all before it. Here the basis is orthonormal in the
inner product of P (V P V^T = I), in which P^-1 H is symmetric. So each vector is orthogonalised
against the last two only (Lanczos), and H_bar = V H V^T is tridiagonal. Rounding slowly destroys
the orthogonality. A recurrence (Simon 1984) estimates the loss; where it is too large, a vector
is orthogonalised against all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksdmin._ksd.factor import Factor, largest_entry
from ksdmin._ksd.line_search import PATIENCE
from ksdmin._ksd.precond import Preconditioner
from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.values import made

# In units of rounding; anything smaller is noise. If orthogonalisation leaves no more of a vector,
# the space is exhausted, or the vector lies in the span. Smaller eigenvalues, and smaller parts of
# a gradient, are unknown, and so is the Cholesky factor of a matrix that is worse conditioned.
MIN_REMAINDER = 100
# A power of the rounding error: how far from orthogonal two vectors may be. 0.5 is the least that
# keeps H_bar accurate, but then a quadratic function is solved to half of the digits only. 0.75
# needs twice as many full orthogonalisations, which is still a tenth of all.
ORTHOGONAL = 0.75


@dataclass(frozen=True)
class Basis:
    """A basis and the model within it."""

    V: Array  # the basis vectors, one per row
    # V H V^T and V g.
    H_bar: Small
    g_bar: Small
    orthonormal: bool = True  # whether V V^T is the identity
    # The largest |v_j^T H v_k - v_k^T H v_j| seen, relative to the largest entry of H_bar.
    asymmetry: float = 0.0
    finite: bool = True  # False where a product was not finite and the construction ended there
    # E -> E H V, the products of combinations of the basis vectors, from what was computed.
    products: Callable[[Small], Array] | None = None
    of_matrix: bool = False  # whether it is made of the whole curvature matrix, not of products
    # That matrix, factorised, where it is positive definite and was to be kept.
    factor: Factor | None = None

    @property
    def dim(self) -> int:
        """The number of basis vectors."""
        return len(self.g_bar)

    @property
    def newton_decrease(self) -> float:
        """The reduction that the quadratic model predicts for its own Newton step."""
        return float(self.g_bar @ np.linalg.lstsq(self.H_bar, self.g_bar, rcond=None)[0]) / 2

    def decrease(self, c: Small) -> float:
        """The reduction that the quadratic model predicts for the step V c."""
        return -float(self.g_bar @ c + c @ self.H_bar @ c / 2)

    def gram(self, space: Space) -> Small | None:
        """V V^T; None where it is the identity."""
        return None if self.orthonormal else space.to_host(space.gram(self.V, self.V))[0]


def krylov_basis(
    space: Space,
    g: Array,
    preconditioner: Preconditioner,  # P
    product: Callable[[Array], Array],  # v -> Hv, once for each basis vector
    # The previous search directions, adjoined after the Krylov vectors: for this P itself must be
    # known, not only its inverse.
    d_prev: Sequence[Array],
    K: int,  # the largest dimension of the Krylov part
    enough: Callable[[Growth], bool],  # asked after each product; True ends the Krylov part
    *,
    # Whether to ask for each product before the result of the last one reaches the host, so that a
    # device need not wait for it. One product may then be wasted, where the space is exhausted or
    # `enough` says so. Vectors are orthogonalised against all others.
    ahead: bool = False,
    noise: float = 0.0,  # the relative error of products, where it is more than rounding
    # Makes room for the vectors, as `Rows` do. Where it is that of a run's `Workspace`, the next
    # basis may overwrite this one.
    rows_of: Callable[[Space, Preconditioner, int], Rows] | None = None,
) -> Basis:
    """Construct the basis V and the curvature H_bar in its co-ordinates (Algorithm 2).

    Vectors whose remainder vanishes are left out: it is empty where g and all of d_prev are zero.
    """
    K = min(K, space.n)
    capacity = K + len(d_prev)
    growth = Growth((rows_of or Rows)(space, preconditioner, capacity), capacity, ahead, noise)
    found = growth.begin(g)  # Alg. 2, lines 1 and 2
    while found:
        last = growth.dim + 1 == K
        found = growth.measure(product, follow=not last)  # lines 4 to 15
        if found and enough(growth):
            break
    if growth.finite and d_prev:
        growth.adjoin(d_prev, product)  # line 8
    return growth.basis()


class Growth:
    """A basis that grows by Lanczos' recurrence: a vector waits, and is measured by one product.

    Beside the basis vectors v there are their images u = P v. The next ones come from the
    remainder of the product, r = H v - (its part in the span of all u): u = r / beta and
    v = P^-1 r / beta, where beta^2 = r^T P^-1 r.
    """

    def __init__(self, rows: Rows, capacity: int, ahead: bool = False, noise: float = 0.0) -> None:
        space = rows.space
        self.dim, self.finite = 0, True  # the vectors measured, and whether all products were
        self._space, self._rows, self._eager = space, rows, ahead
        self._orthogonality = Orthogonality(capacity, space.eps, noise)
        self._ahead: Array = None  # the waiting vector's product, if asked for already
        self._H_bar = np.zeros((capacity, capacity))
        self._coefficients = np.zeros((capacity, capacity))  # coefficients of H v_k in the u
        self._alpha, self._beta, self._beta0 = 0.0, 0.0, 0.0  # the last norms, and the first
        self._largest = 0.0  # all of them
        self._pivot, self._share = 1.0, 1.0  # of the LDL^T factors of H_bar; see `residual`
        self._across, self._gap = 0.0, 0.0  # the last w^T v of the next v; see `asymmetry`

    @property
    def H_bar(self) -> Small:
        """The curvature within the vectors measured."""
        return self._H_bar[: self.dim, : self.dim]

    def begin(self, g: Array) -> bool:
        """The first vector, along P^-1 g; False if that vanishes."""
        g, scale = self._within_range(g)
        z = self._rows.P.solve(g)
        squared = float(self._space.inner(g, z))
        if not 0 < squared < math.inf:
            return False
        norm = squared**0.5
        self._beta0 = norm * scale
        self._rows.put(0, g, z, 1 / norm)
        return True

    def _within_range(self, g: Array) -> tuple[Array, float]:
        """`g` over a scale, so that the square of its norm stays within range; and the scale."""
        tiny = self._space.eps**2
        if tiny < float(self._space.inner(g, g)) < 1 / tiny:
            return g, 1.0
        largest = self._space.max_abs(g)
        return (g / largest, largest) if 0 < largest < np.inf else (g, 1.0)

    def measure(self, product: Callable[[Array], Array], follow: bool) -> bool:
        """Multiply the waiting vector and take it in; then make the next one, if it is to `follow`.

        Returns whether a vector waits. If the product is not finite, none does.
        """
        k, space, rows = self.dim, self._space, self._rows
        w, self._ahead = product(rows.V[k, :]) if self._ahead is None else self._ahead, None
        if self._eager and follow:
            return self._follow_ahead(k + 1, w, product)
        h = rows.along(k, w)
        if space.numpy and not self._take_in(h):
            return False
        rows.leave(k, w, h)
        if follow:
            return self._follow(h, w)
        if not space.numpy:
            self._take_in(space.to_host(h)[0])
        return False

    def _follow(self, h: Array, w: Array) -> bool:
        """The next vector, if anything is left for it."""
        rows, space = self._rows, self._space
        z = rows.P.solve(rows.r)
        squared = space.inner(rows.r, z)
        if not space.numpy:
            h, squared = space.to_host(h, squared)
            if not self._take_in(h):
                return False
        norm = _root(squared)
        if self._orthogonality.lost_by(self._H_bar, self.dim - 1, norm):
            z, norm = self._orthogonalised()
        left, self._beta = self._is_left(norm), norm
        if not left:
            return False
        rows.put(self.dim, rows.r, z, 1 / norm)
        self._across = float(space.inner(w, rows.V[self.dim, :]))
        return True

    def _follow_ahead(self, k: int, w: Array, product: Callable[[Array], Array]) -> bool:
        """Vector k and its product, asked for before anything is known on the host."""
        rows = self._rows
        numbers = self._space.to_host_async(rows.advance(k, w))
        self._ahead = product(rows.V[k, :])
        squared, across, c, h = split(numbers()[0], k)
        if not self._take_in(h):
            return False
        self._coefficients[k - 1, :k] += c
        norm = _root(squared)
        if squared < c @ c:
            self._ahead = None
            z, norm = self._orthogonalised()
            rows.put(k, rows.r, z, 1 / norm if norm else 1.0)
            across = float(self._space.inner(w, rows.V[k, :]))
        self._across = across
        left, self._beta = self._is_left(norm), norm
        return left

    def _orthogonalised(self) -> tuple[Array, float]:
        """P^-1 r and its norm, for a remainder r made orthogonal to all vectors.

        If more is taken out than is left, orthogonalise again, because of rounding. Twice is enough
        (Kahan and Parlett): what still changes then is rounding.
        """
        rows, space = self._rows, self._space
        for _ in range(PATIENCE):
            c = rows.orthogonalise(self.dim)
            z = rows.P.solve(rows.r)
            squared, c = space.to_host(space.inner(rows.r, z), c)
            self._coefficients[self.dim - 1, : self.dim] += c
            norm = _root(squared)
            if squared >= c @ c or not self._is_left(norm):
                return z, norm
        return z, 0.0

    def _take_in(self, h: Small) -> bool:
        """Record the numbers of vector k; False if they are not finite."""
        k, beta = self.dim, self._beta
        across, alpha = h.tolist() if k else (0.0, float(h[0]))
        if not math.isfinite(across + alpha):
            self.finite = False
            return False
        if k:
            self._gap = max(self._gap, abs(self._across - across))
            self._coefficients[k - 1, k] = beta
            self._coefficients[k, k - 1] = across
            self._H_bar[k - 1, k] = self._H_bar[k, k - 1] = across
            self._share *= beta / self._pivot if self._pivot else math.nan
            self._pivot = alpha - beta * beta / self._pivot if self._pivot else alpha
        else:
            self._pivot = alpha
        self._H_bar[k, k] = self._coefficients[k, k] = self._alpha = alpha
        self.dim = k + 1
        return True

    def _is_left(self, norm: float) -> bool:
        """Whether a remainder of this norm is more than the rounding of the products so far.

        All products count: the last one may itself be of a vector that is mostly rounding.
        """
        self._largest = max(self._largest, abs(self._alpha), self._beta)
        before = math.hypot(norm, self._largest)
        return MIN_REMAINDER * self._space.eps * before < norm < math.inf

    def adjoin(self, directions: Sequence[Array], product: Callable[[Array], Array]) -> None:
        """Add the parts of the directions that lie outside the basis, with their products."""
        space, rows, k, times = self._space, self._rows, self.dim, self._rows.P.times
        assert times is not None
        V, D = rows.V[:k, :], space.xp.stack(list(directions))
        before = space.gram(D, times(D))
        for _ in range(2):  # Gram-Schmidt, twice
            D = D - space.gram(times(D), V) @ V
        before, left = space.to_host(before, space.gram(D, times(D)))
        E = _orthonormalised(left, np.diagonal(before), MIN_REMAINDER * space.eps)
        end = k + len(E)
        rows.V = space.put(rows.V, (slice(k, end), slice(None)), space.to_device(E) @ D)
        W = [product(rows.V[j, :]) for j in range(k, end)]
        if W:
            h = space.gram(space.xp.stack(W), rows.V[:end, :])
            self._take_in_adjoined(space.to_host(h)[0])

    def _take_in_adjoined(self, h: Small) -> None:
        """Record v^T H v_j of the added vectors v with all vectors."""
        if not np.isfinite(h).all():
            self.finite = False
            return
        k, end = self.dim, h.shape[1]
        self._H_bar[:k, k:end] = h[:, :k].T
        self._H_bar[k:end, :k] = h[:, :k]
        self._H_bar[k:end, k:end] = (h[:, k:] + h[:, k:].T) / 2
        self.dim = end

    def residual(self) -> float:
        """|g + H d| / |g| of the Newton step d in the subspace, in the norm of P^-1.

        From the recurrence of the LDL^T factors of H_bar, as in the conjugate gradient method.
        """
        return abs(self._beta * self._share / self._pivot) if self._pivot else math.inf

    def newton_step(self, k: int) -> tuple[Array, float]:
        """The Newton step in the first k vectors, and its slope g^T d."""
        g_bar = np.zeros(k)
        g_bar[0] = self._beta0
        c = -np.linalg.lstsq(self.H_bar[:k, :k], g_bar, rcond=None)[0]
        return self._space.combine(self._rows.V[:k, :], c), float(self._beta0 * c[0])

    def basis(self) -> Basis:
        """The basis so far."""
        dim, largest = self.dim, largest_entry(self.H_bar)
        g_bar = np.zeros(dim)
        g_bar[:1] = self._beta0  # the other vectors are orthogonal to it
        return made(
            Basis,
            V=self._rows.V[:dim, :],
            H_bar=self.H_bar,
            g_bar=g_bar,
            orthonormal=self._rows.P.is_identity,
            asymmetry=self._gap / largest if largest else 0.0,
            finite=self.finite,
            products=self._products,
        )

    def _products(self, E: Small) -> Array:
        """E H V of the Krylov vectors."""
        k, space = self.dim, self._space
        inside = space.to_device(np.ascontiguousarray(E @ self._coefficients[:k, :k]))
        last = space.to_device(np.ascontiguousarray(E[:, k - 1 :]))
        return self._rows.image(inside, 0, k) + last * self._rows.r[None, :]


def _root(squared: float | Small) -> float:
    """The square root; 0 where rounding has made the argument negative."""
    return math.sqrt(squared) if squared > 0 else 0.0


def _orthonormalised(gram: Small, before: Small, rounding: float) -> Small:
    """E with E gram E^T = I; a vector of which only rounding is left has no row.

    Rounding is relative to the squared norms `before`, and to the diagonal of the Gram matrix,
    which contains squares.
    """
    least = np.maximum(rounding**2 * before, rounding * np.diagonal(gram))
    rows: list[Small] = []
    for j, e in enumerate(np.eye(len(gram))):
        for row in rows:
            e = e - (row @ gram[:, j]) * row
        squared = float(e @ gram @ e)
        if squared > least[j]:
            rows.append(e / squared**0.5)
    return np.reshape(rows, (-1, len(gram)))


class Orthogonality:
    """An estimate of how orthogonal the vectors still are, without computing it (Simon 1984).

    It is of the largest v_j^T P v_k, j < k, that rounding leaves.
    """

    def __init__(self, capacity: int, eps: float, noise: float = 0.0) -> None:
        self._eps, self._tolerance = max(eps, noise), eps**ORTHOGONAL
        self._last, self._this = np.zeros(capacity + 1), np.zeros(capacity + 1)
        self._again = False

    def lost_by(self, T: Small, k: int, beta: float) -> bool:
        """Whether vector k + 1 with the norm `beta` would no longer be orthogonal to all before it.

        If True, the caller orthogonalises it, and the one after it as well, because the recurrence
        has three terms.
        """
        if not 0 < beta < math.inf:
            return False
        this, last, alpha = self._this, self._last, float(T[k, k])
        this[k] = 1.0
        error = self._eps * (abs(alpha) + beta)
        largest = error
        if k:  # written into `last`, which is not needed again
            estimates = last[:k]
            estimates *= -T[k, k - 1]
            estimates += T[:k, : k + 1].dot(this[: k + 1])
            estimates -= alpha * this[:k]
            np.abs(estimates, out=estimates)
            largest += float(estimates[estimates.argmax()])
        lost = largest > self._tolerance * beta
        again, self._again = self._again, lost and not self._again
        if lost or again:
            last[: k + 1] = self._eps
        else:
            last[k] = 0.0
            last[: k + 1] += error
            last[: k + 1] /= beta
        self._last, self._this = this, last
        return lost or again


class Rows:
    """The vectors of a basis as rows of V, their images under P, and the last remainder r.

    r is what of the last product lies outside the span of the images.
    """

    def __init__(
        self,
        space: Space,
        P: Preconditioner,  # the images are kept where P itself is not known
        capacity: int,  # how many vectors there may be
        # Arrays for the vectors, and for the images, that are there already.
        room: Sequence[Array] = (),
    ) -> None:
        self.space, self.P = space, P
        self.V, *images = room or [space.rows(capacity) for _ in range(arrays(P))]
        self.r: Array = None
        self._U = images[0] if images else None

    def put(self, k: int, u: Array, v: Array, scale: Any) -> None:
        """Put scale * v into row k of V, and scale * u into that of its image."""
        self.V = self.space.put_scaled(self.V, k, v, scale)
        if self._U is not None:
            self._U = self.space.put_scaled(self._U, k, u, scale)

    def image(self, c: Array, first: int, end: int) -> Array:
        """P times the vector with coefficients `c` in the rows from `first` to `end` of V."""
        if self._U is not None:
            return self.space.times(c, self._U[first:end, :])
        assert self.P.times is not None
        return self.P.times(self.space.times(c, self.V[first:end, :]))

    def along(self, k: int, w: Array) -> Array:
        """For the product w of row k: w^T v of the row before, if any, and of row k.

        Up to rounding, w is orthogonal to all earlier rows.
        """
        return self.space.dots(self.V[max(k - 1, 0) : k + 1, :], w)

    def leave(self, k: int, w: Array, h: Array) -> None:
        """The remainder of w after the parts h that `along` returned."""
        self.r = w - self.image(h, max(k - 1, 0), k + 1)

    def orthogonalise(self, k: int) -> Array:
        """Remove the span of the first k vectors from the remainder."""
        c = self.space.inner(self.V[:k, :], self.r)
        self.r = self.r - self.image(c, 0, k)
        return c

    def advance(self, k: int, w: Array) -> Array:
        """Row k, from the product w of the row before; returns what the host needs: `split`."""
        h = self.along(k - 1, w)
        self.leave(k - 1, w, h)
        c = self.orthogonalise(k)
        z = self.P.solve(self.r)
        squared = self.space.inner(self.r, z)
        self.put(k, self.r, z, squared**-0.5)
        across = self.space.inner(w, self.V[k, :])
        return self.space.xp.concat([squared[None], across[None], c, h])


def arrays(P: Preconditioner) -> int:
    """How many arrays of vectors a basis needs."""
    return 2 if P.times is None else 1


def split(numbers: Small, k: int) -> tuple[float, float, Small, Small]:
    """The result of `Rows.advance`: r^T P^-1 r, w^T v_k, what r has lost, w^T v of two rows."""
    return float(numbers[0]), float(numbers[1]), numbers[2 : 2 + k], numbers[2 + k :]
