"""One step of Lanczos' recurrence without the host: see `Growth`, which makes a basis of them.

A step is some twenty operations on few vectors. On a CUDA device, launching them may take longer
than the product that they wait for, so they are recorded and launched all at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksdmin._ksd.precond import Preconditioner
from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.cuda import Graph, new_pool

# As a power of the rounding error: how far two vectors may be from orthogonal. 0.5 is the least
# that keeps H_bar accurate, but a quadratic function is solved to half of the digits then; 0.75
# costs twice as many full orthogonalisations, still a tenth of all.
ORTHOGONAL = 0.75


class Orthogonality:
    """How orthogonal the vectors still are, without a look at them (Simon 1984).

    An estimate of the largest v_j^T P v_k, j < k, that rounding leaves.
    """

    def __init__(self, capacity: int, eps: float, noise: float = 0.0) -> None:
        self._eps, self._tolerance = max(eps, noise), eps**ORTHOGONAL
        self._last, self._this = np.zeros(capacity + 1), np.zeros(capacity + 1)
        self._again = False

    def lost_by(self, T: Small, k: int, beta: float) -> bool:
        """Whether vector k + 1 with the norm `beta` would no longer be orthogonal to the first.

        True means that the caller makes it so; that also goes for the one after it, since the
        recurrence has three terms.
        """
        if not 0 < beta < math.inf:
            return False
        this, last, alpha = self._this, self._last, float(T[k, k])
        this[k] = 1.0
        error = self._eps * (abs(alpha) + beta)
        largest = error
        if k:  # into `last`, which is not needed again
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

    Parameters
    ----------
    space : Space
        Where the vectors live.
    P : Preconditioner
        The images are kept where P itself is not known.
    capacity : int
        How many vectors there may be.
    room : list of arrays, optional
        Arrays for the vectors, and for the images, that are there already.

    Attributes
    ----------
    V : array
        With room for all vectors.
    r : array
        What of the last product lies outside the span of the images.
    """

    def __init__(
        self, space: Space, P: Preconditioner, capacity: int, room: Sequence[Array] = ()
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
        """Of the product w of row k: its own products with the row before, if any, and with row k.

        But for rounding, w is orthogonal to all earlier ones.
        """
        return self.space.dots(self.V[max(k - 1, 0) : k + 1, :], w)

    def leave(self, k: int, w: Array, h: Array) -> None:
        """The remainder of w, where `along` returned h."""
        self.r = w - self.image(h, max(k - 1, 0), k + 1)

    def orthogonalise(self, k: int) -> Array:
        """Take what lies in the span of the first k vectors out of the remainder."""
        c = self.space.inner(self.V[:k, :], self.r)
        self.r = self.r - self.image(c, 0, k)
        return c

    def advance(self, k: int, w: Array) -> Array:
        """Row k, from the product w of the one before it; returns what the host has to know.

        That is `split` there.
        """
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
    """Of `Rows.advance`: r^T P^-1 r, w^T v_k, what was taken out of r, w^T v of the last two."""
    return float(numbers[0]), float(numbers[1]), numbers[2 : 2 + k], numbers[2 + k :]


class RecordedRows(Rows):
    """The same arrays for all bases of a run on a CUDA device; steps are recorded and repeated."""

    def __init__(self, space: Space, P: Preconditioner, capacity: int) -> None:
        super().__init__(space, P, capacity)
        self.capacity = capacity
        self._arrays = tuple(space.copy(u) for u in P.arrays)
        self.P = P if P.again is None else P.again(*self._arrays)
        self._w, self._kept_r = space.rows(2)
        self._numbers: dict[int, Array] = {}
        self._graphs: dict[int, Graph] = {}
        self._seen: set[int] = set()
        self._pool = new_pool()

    def serves(self, P: Preconditioner, capacity: int) -> bool:
        """Whether a basis of that size, with a matrix of that kind, can be made here."""
        shapes = [[u.shape for u in arrays] for arrays in (P.arrays, self._arrays)]
        return capacity <= self.capacity and shapes[0] == shapes[1]

    def begin(self, P: Preconditioner) -> None:
        """Make room for the next basis."""
        for own, given in zip(self._arrays, P.arrays, strict=True):
            own[:] = given

    def advance(self, k: int, w: Array) -> Array:
        """As `Rows` do: eagerly the first time, then recorded."""
        if k not in self._seen:  # in a run of one or two iterations it would not pay
            self._seen.add(k)
            return super().advance(k, w)
        self._w[:] = w
        if k in self._graphs:
            self._graphs[k]()
        else:
            self._graphs[k] = Graph(lambda: self._recorded(k), self.space.device, self._pool)
        self.r = self._kept_r
        return self._numbers[k]

    def _recorded(self, k: int) -> None:
        numbers = super().advance(k, self._w)
        if k not in self._numbers:
            self._numbers[k] = self.space.xp.empty_like(numbers)
        self._numbers[k][:] = numbers
        self._kept_r[:], self.r = self.r, None


class Workspace:
    """What the bases of a run share.

    Room for a hundred vectors takes longer to get from the system, and to give back, than a small
    basis takes to make: with NumPy it is kept. (Torch keeps it by itself, jax never writes into
    it.)
    """

    def __init__(self) -> None:
        self._rows: RecordedRows | None = None
        self._room: list[Array] = []

    def rows(self, space: Space, P: Preconditioner, capacity: int) -> Rows:
        """Rows for the next basis, which ends the use of those before."""
        if space.numpy:
            return Rows(space, P, capacity, self._arrays(space, arrays(P), capacity))
        if not (space.remote and (P.is_identity or P.again is not None)):
            return Rows(space, P, capacity)
        if self._rows is None or not self._rows.serves(P, capacity):
            self._rows = None  # free it first
            self._rows = RecordedRows(space, P, capacity)
        self._rows.begin(P)
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {"_rows": None, "_room": []}  # a graph belongs to its process: a copy has its own

    def _arrays(self, space: Space, count: int, capacity: int) -> list[Array]:
        """So many arrays with room for at least so many vectors."""
        if any(room.shape[0] < capacity for room in self._room):
            self._room = []  # free them first
        self._room += [space.rows(capacity) for _ in range(count - len(self._room))]
        return self._room[:count]
