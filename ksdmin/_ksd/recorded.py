"""Work on a CUDA device that is recorded once, and then launched as a whole.

With few unknowns, launching an operation takes longer than the operation itself, and waiting for a
number takes longer than both.

A quasi-Newton step has some forty operations: for the slope at its end and two norms; then for the
new pair, its products, and the direction of the next step. Here they are two recorded graphs. The
host waits for the numbers of the first. Those of the second arrive while the host judges the step.

A step of Lanczos' recurrence has some twenty operations, on few vectors. On other devices, and on
the host, a `Workspace` only keeps the memory for the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from ksdmin._ksd.krylov import Rows, arrays
from ksdmin._ksd.precond import Preconditioner
from ksdmin._ksd.quasi_newton import Inverse, PairProducts, QuasiNewton, Solved, scaled_by_pair
from ksdmin._problem.arrays import Array, Space


class StepProducts(NamedTuple):
    """What is known at the end of a step of the model."""

    slope: float  # g^T u there, of the step along -u
    # Of the step the Euclidean one, of the gradient the largest magnitude.
    step_norm: float
    gradient_norm: float
    d: Array  # the step
    pair: Callable[[], PairProducts]  # () -> what it teaches


Measure = Callable[[Array, Array], StepProducts]
"""Measures a step, from the point and the gradient at its end."""

# The inputs and outputs of a graph, in this order; and what the host has to know at once.
VECTORS = ("x", "g", "x at the end", "g at the end", "u", "D")
RESULTS = ("d", "s of the pair", "y of the pair", "u at the end")
NUMBERS = ("g^T u at the end", "d^T d", "the largest of g", "d^T y", "y^T y")


class RecordedStep:
    """Arrays of its own for the model and the vectors of a step, and what is computed from them.

    Where the model has fewer pairs than it may have, the oldest are zero: these change nothing.
    """

    def __init__(self, space: Space, capacity: int) -> None:
        xp, like = space.xp, {"dtype": space.dtype, "device": space.device}
        self.space, self.capacity, self._filled = space, capacity, 0
        self._pairs = xp.zeros((2, capacity + 1, space.n), **like)  # the new one is the last
        self._R = xp.zeros((capacity, capacity), **like)  # R^-1 of the old pairs,
        self._R_new = space.put(xp.zeros_like(self._R), (-1, -1), 1.0)  # and of the pairs that stay
        self._vectors = xp.zeros((len(VECTORS), space.n), **like)
        self._ones = xp.ones(space.n, **like)
        self._results = xp.zeros((len(RESULTS), space.n), **like)
        self._along = xp.zeros(2, **like)  # d^T y, y^T y
        self._at_once = space.native.Arrival(space.dtype, space.device, len(NUMBERS))
        self._later = space.native.Arrival(space.dtype, space.device, 1 + capacity)
        self._last: Callable[[], PairProducts] | None = None
        self._recorded: dict[str, Callable[[], None]] = {}
        self._pool = space.native.new_pool() if space.remote else None

    def fill(self, model: QuasiNewton) -> None:
        """Copy the pairs of the model; usually they are here already, one place to the right."""
        assert model.pairs is not None
        first, last, filled = self.capacity - len(model), self._last, self._filled
        self._last, self._filled = None, self.capacity  # in case it is interrupted
        if last is not None and last().solved is model.solved:
            self._repeat("shift", self._shift)
        else:
            if len(model) < filled:
                self._pairs[:] = 0.0
                self._R[:] = 0.0
            self._pairs[:, first : self.capacity, :] = model.pairs.array
        self._R[first:, first:] = self.space.to_device(model.R_inverse)
        self._filled = len(model)

    def _shift(self) -> None:
        self._pairs[:, :-1, :] = self.space.copy(self._pairs[:, 1:, :])

    def measure(
        self, x: Array, g: Array, u: Array, D: Array | None, x_end: Array, g_end: Array
    ) -> StepProducts:
        """Measure the step along -u from x to x_end."""
        last, self._last = self._last, None
        if last is not None:
            last()  # the arrays that it waits for will be overwritten
        vectors = [x, g, x_end, g_end, u, self._ones if D is None else D]
        self.space.native.stack_into(self._vectors, vectors)
        self._repeat("compare", self._compare)
        self._at_once.expect()
        self._repeat("learn", self._learn)
        self._later.expect()
        results = self.space.copy(self._results)
        slope, s2, largest, along, y2 = self._at_once.wait().tolist()
        kept = min(self._filled + 1, self.capacity)

        later = self._later  # `pair` must not keep this object alive, which keeps `pair`

        def pair() -> PairProducts:
            numbers = later.wait()
            solved = Solved(g_end, D, results[-1, :], float(numbers[0]))
            return PairProducts(
                s2, along, y2, results[1:-1, None, :], numbers[-kept:, None], solved
            )

        self._last = cache(pair)  # the first call waits for its products to be copied to the host
        return StepProducts(slope, s2**0.5, largest, results[0, :], self._last)

    def _compare(self) -> None:
        """Compare the end of the step with its start; the host waits for this."""
        inner, xp, change = self.space.inner, self.space.xp, self._results[:2, :]
        x, g, x_end, g_end, u, _ = self._vectors
        d, y = x_end - x, g_end - g
        self.space.native.stack_into(change, [d, y])
        self._along[:] = inner(change, y)
        numbers = xp.stack([inner(g_end, u), inner(d, d), xp.max(xp.abs(g_end))])
        self._at_once.take(xp.concat([numbers, self._along]))

    def _learn(self) -> None:
        """Compute the pair, and the direction of the model with it."""
        space, inner, times = self.space, self.space.inner, self.space.times
        *_, g, _, D = self._vectors
        pairs, pair = self._pairs[:, 1:, :], self._along[0] ** -0.5 * self._results[:2, :]
        self._pairs[:, -1, :] = pair
        columns = inner(pairs[0, :, :], pair[1, :])
        old = self._R[1:, 1:]
        self._R_new[:-1, :-1] = old
        self._R_new[:-1, -1] = -times(old, columns[:-1])
        scaled = scaled_by_pair(space, pairs, Preconditioner.diagonal(D))
        u = Inverse(space, pairs, self._R_new, scaled.solve)(g)
        self._later.take(space.xp.concat([inner(g, u)[None], columns]))
        space.native.stack_into(self._results[1:, :], [*pair, u])

    def _repeat(self, name: str, operations: Callable[[], None]) -> None:
        """Record the first time, then repeat."""
        if name in self._recorded:
            self._recorded[name]()
        elif self.space.remote:
            self._recorded[name] = self.space.native.Graph(
                operations, self.space.device, self._pool
            )
        else:
            operations()


class RecordedSteps:
    """What the steps of the model share in a run on a CUDA device."""

    def __init__(self) -> None:
        self._step: RecordedStep | None = None

    def measure(
        self, space: Space, model: QuasiNewton, x: Array, g: Array, u: Array, D: Array | None
    ) -> Measure | None:
        """How to measure the step along -u from x, where the gradient is g; None: like any other.

        Only if the pairs fit into the device's cache: otherwise computing takes longer than
        launching, and a second array of pairs is too large.
        """
        if not is_recordable(space, model):
            return None
        step = self._step
        if step is None or step.space is not space or step.capacity != model.capacity:
            step = self._step = RecordedStep(space, model.capacity)
        step.fill(model)
        return partial(step.measure, x, g, u, D)

    def __getstate__(self) -> dict[str, Any]:
        return {"_step": None}  # a graph belongs to its process: a copy has its own


def is_recordable(space: Space, model: QuasiNewton) -> bool:
    """Whether the model's steps are recorded."""
    plain = model.pairs is not None and model.base is None and model.drift is None
    if not plain or not space.remote:
        return False
    size = 2 * model.capacity * space.vector_bytes
    return bool(size <= space.native.cache_bytes(space.device))


class RecordedRows(Rows):
    """The same arrays for all bases of a run on a CUDA device; steps are recorded and repeated."""

    def __init__(self, space: Space, P: Preconditioner, capacity: int) -> None:
        super().__init__(space, P, capacity)
        self.capacity = capacity
        self._arrays = tuple(space.copy(u) for u in P.arrays)
        self.P = P if P.again is None else P.again(*self._arrays)
        self._w, self._kept_r = space.rows(2)
        self._numbers: dict[int, Array] = {}
        self._graphs: dict[int, Callable[[], None]] = {}
        self._seen: set[int] = set()
        self._pool = space.native.new_pool()

    def serves(self, P: Preconditioner, capacity: int) -> bool:
        """Whether a basis of that size, with a matrix of that kind, can be made here."""
        shapes = [[u.shape for u in arrays] for arrays in (P.arrays, self._arrays)]
        return capacity <= self.capacity and shapes[0] == shapes[1]

    def begin(self, P: Preconditioner) -> None:
        """Prepare for the next basis."""
        for own, given in zip(self._arrays, P.arrays, strict=True):
            own[:] = given

    def advance(self, k: int, w: Array) -> Array:
        """Like `Rows.advance`: eagerly the first time, then recorded."""
        if k not in self._seen:  # recording would not pay in a run of one or two iterations
            self._seen.add(k)
            return super().advance(k, w)
        self._w[:] = w
        if k in self._graphs:
            self._graphs[k]()
        else:
            self._graphs[k] = self.space.native.Graph(
                lambda: self._recorded(k), self.space.device, self._pool
            )
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

    Memory for a hundred vectors takes longer to get from the system, and to give back, than a small
    basis takes to make. With NumPy it is kept. (Torch keeps memory anyway, and jax never writes
    into arrays.)
    """

    def __init__(self) -> None:
        self._rows: RecordedRows | None = None
        self._room: list[Array] = []

    def rows(self, space: Space, P: Preconditioner, capacity: int) -> Rows:
        """Rows for the next basis; those of the last one are overwritten."""
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
        """So many arrays, each for at least so many vectors."""
        if any(room.shape[0] < capacity for room in self._room):
            self._room = []  # free them first
        self._room += [space.rows(capacity) for _ in range(count - len(self._room))]
        return self._room[:count]
