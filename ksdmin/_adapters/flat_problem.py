"""What the problems of all adapters share: counts, the preconditioner, SciPy's callables, sets."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.names import Names
from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.counting import CountingProblem, Counts
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.team import ALONE, Team, Watch
from ksdmin._problem.user_values import (
    as_generator,
    frames_to_the_user,
    given,
    samples,
    unknowns,
)
from ksdmin._problem.values import changed

# The relative rounding error of a mean loss in float32, by the precision of matrix products. One
# rounding of float32 is 6e-8, of TF32 5e-4 and of bfloat16 4e-3; those of the many products in a
# mean loss partly cancel.
VALUE_NOISE = {"highest": 1e-7, "high": 1e-5, "bfloat16": 1e-3}
# If the diagonal needs the gradient of every sample, it is estimated from so many samples: the
# gradients of single samples cost twice as much as their sum for a convolution, and 20 to 100 times
# as much for a recurrent net.
DIAGONAL_SAMPLES = 256
# The power of the Fisher diagonal that Martens (2010) uses: between no preconditioner (0) and the
# diagonal itself (1).
FISHER_POWER = 0.75
# Memory of a curvature product, in units of what a forward pass keeps: the pass for J v keeps as
# much again, and both use temporary arrays of about that size.
WORKING_COPIES = 4


class FlatProblem(CountingProblem):
    """A model as a problem over one flat vector; each adapter adds what it computes."""

    _curvature: Any = None  # as given: a name, or the user's own function
    _double: Callable[[], FlatProblem | None] | None = None  # makes the problem in float64
    lock: ClassVar[AbstractContextManager[Any]] = nullcontext()  # a sum returns an array of its own

    def __init__(
        self,
        x0: Array,  # the model's own parameters
        subsets: Subsets | None,  # its samples
        traits: Traits,  # what its adapter knows of it, without those of the preconditioner
        # "diagonal" (of the empirical Fisher matrix), None, or an array or a callable of the user's
        precond: Any,
    ) -> None:
        self.x0, self.subsets = x0, subsets
        self.traits = replace(
            traits,
            has_diagonal=precond is not None,
            diagonal_power=FISHER_POWER if isinstance(precond, str) else 1.0,
        )
        self._space, self._precond, self._counts = Space(x0), precond, Counts()
        self._team: Team | None = None
        if hasattr(precond, "shape"):
            self._space.vector(precond, "precond")  # checked here, because a run may not use it

    def _described(self) -> list[str]:
        kind = given("curvature", self._curvature)
        return [unknowns(self.x0), *samples(self.subsets), *kind]

    @property
    def team(self) -> Team:
        """The processes that evaluate it together."""
        return self._team or ALONE

    def spread_over(self, team: Team) -> Self:
        """A copy that evaluates the samples of all these processes, and tells them of a failure."""
        raise NotImplementedError

    def in_step_with(self, watch: Watch) -> Self:
        if self._team is None:
            return self
        return self.spread_over(self._team.for_run(watch))

    def home(self, space: Space) -> Space:
        """Where the vectors of a run live, which were in `space` so far."""
        own = self._space
        return space if space.hosted or own.dtype == space.dtype else own

    def in_double(self) -> FlatProblem | None:
        """The same problem in float64; None if that is impossible or not wanted."""
        return None if self._double is None else self._double()

    # Parameters by name

    def index(self, name: str) -> slice | npt.NDArray[np.int64]:
        """Where the parameter `name` is in the flat vector: ``x[problem.index("fc.bias")]``.

        A name is a path such as ``layers.0.w``, with the names of a torch module or the keys and
        positions of a tree. It also stands for all parameters beneath it, as ``layers``. The index
        is a slice, or an array if these are not contiguous.
        """
        return self._names().index(name)

    def named_bounds(self, bounds: Mapping[str, Any]) -> Bounds:
        """Bounds by name as bounds of the flat vector."""
        return Bounds(*self._names().limits(bounds))

    # What each adapter computes

    def _names(self) -> Names:
        """The names of the parameters."""
        raise NotImplementedError

    def _value(self, x: Array, idx: Any) -> Any:
        """The mean loss, as a number, or as a scalar on its device."""
        raise NotImplementedError

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        """Value, gradient and, if asked for, the diagonal of the preconditioner."""
        raise NotImplementedError

    def _share(self, x: Array, idx: Any) -> tuple[list[Any], Array, Callable[[Any], Any]]:
        """The contribution of this process: numbers, and its part of the gradient.

        Also the function that computes the value from the sums of the numbers. The penalty is in
        the gradient of the first process.
        """
        raise NotImplementedError

    # What is derived from it

    def value(self, x: Array, idx: Any = WHOLE) -> float:
        """The mean loss."""
        return float(self._value(x, idx))

    def value_and_gradient(self, x: Array, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        """(value, gradient), or with the diagonal of the preconditioner."""
        value, *vectors = self._evaluate(x, idx, diagonal)
        return (float(value), *vectors)

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        """The value and V^T g, in one transfer; several processes send only these numbers."""
        if self._team is None:
            value, g = self._evaluate(x, idx, False)
            value, slopes = self._space.to_host(value, V @ g)
            return float(value), slopes
        with self.lock:
            self._counts.add(nfev=1, njev=1)
            numbers, along, finish = self._share(x, idx)
            return self._team.joint_on_host(numbers, V @ along, finish, self._counts)

    def _user_diagonal(self, x: Array, idx: Any) -> Array:
        if self._precond is None:
            raise ValueError("this problem has no diagonal: precond=None, or a plain function")
        diagonal = (
            self._precond(self._to_device(x), idx) if callable(self._precond) else self._precond
        )
        return self._space.vector(diagonal, "precond")

    def _counted(self, product: Product) -> Product:
        def counted(v: Array) -> Array:
            self._counts.nhev += 1
            return product(v)

        return counted

    def _count_forward_pass(self) -> None:
        """Count a forward pass that a product had to repeat."""
        self._counts.nfev += 1

    # The same on the whole set, for SciPy's methods: numpy in, numpy out

    def fun(self, x: npt.NDArray[Any]) -> float:
        """The value at a numpy vector."""
        return self.value(self._point(x))

    def jac(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The gradient at a numpy vector."""
        return to_host(self.value_and_gradient(self._point(x))[1])

    def hessp(self, x: npt.NDArray[Any], p: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The curvature at a numpy vector, times another."""
        return to_host(self.curvature(self._point(x), WHOLE)(self._point(p)))

    def _point(self, x: Any) -> Array:
        """A vector of any library, as the verbs take it."""
        return self._to_device(x)

    def _to_device(self, x: Any) -> Array:
        """A vector of any library, in the namespace, dtype and device of the problem."""
        self._check_shape(x)
        x = np.asarray(x, dtype=float) if isinstance(x, (list, tuple)) else x
        return x if self._space.holds(x) else self._space.to_device(to_host(x))

    def _check_shape(self, x: Any) -> None:
        if isinstance(x, Mapping):
            mend = ": pass res.x" if hasattr(x, "x") else ""
            raise TypeError(
                f"expected a vector of {self._space.n} numbers, not a {type(x).__name__}{mend}"
            )
        shape = tuple(np.shape(x))
        if shape != (self._space.n,):
            raise ValueError(f"x has shape {shape}, expected {(self._space.n,)}")

    # Copies and pickles

    def __copy__(self) -> Self:
        # A shallow copy shares everything, so it must not go through __getstate__.
        return changed(self)

    def __getstate__(self) -> dict[str, Any]:
        # A namespace is a module: it cannot be pickled.
        return {**self.__dict__, "_space": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._space = Space(self.x0)


# A difference along a direction may deviate from the gradient by at most this share of |g|.
# Curvature and rounding cause far less.
MAX_SLOPE_ERROR = 1e-2


def as_penalty(l2: Any) -> float | Array:
    """The weight of each entry's square, as a Jacobian has it: a number, or one per entry."""
    if l2 is None:
        return 0.0
    own: float | Array = l2 if getattr(l2, "ndim", 0) else float(l2)
    return own


def is_gradient(problem: FlatProblem, x: Array, g: Array, idx: Any) -> bool:
    """Whether `g` agrees with the values of a problem: see `is_slope`."""
    space = Space(x)

    def values_beside(d: Small) -> float:
        return problem.value(x + space.to_device(d), idx)

    return is_slope(values_beside, space.norm(x), to_host(g), space.eps)


def is_slope(values_beside: Callable[[Small], Any], size: float, slopes: Small, eps: float) -> bool:
    """Whether a gradient, or a Jacobian, agrees with a central difference along one direction.

    It does not if a function leaves a part of x out of its graph (``x.sum().item()`` in one term,
    ``jax.lax.stop_gradient``). The values are those at x + d, and |x| is the `size`.
    """
    h = eps ** (1 / 3) * max(1.0, size)
    u = np.random.default_rng(0).standard_normal(int(slopes.shape[-1]))
    u /= np.linalg.norm(u)
    above, below = (np.asarray(values_beside(t * u), np.float64) for t in (h, -h))
    error = float(np.linalg.norm((above - below) / (2 * h) - slopes @ u))
    largest = max(float(np.linalg.norm(above)), float(np.linalg.norm(below)))
    rounding = 100 * eps * largest / h
    return not error > MAX_SLOPE_ERROR * float(np.linalg.norm(slopes)) + rounding


def host_indices(idx: Any, n: int) -> npt.NDArray[np.int64]:
    """A set as a vector of indices on the host; raises if samples do not exist.

    (Jax would take the nearest sample instead, and CUDA would end the process.)
    """
    rows = np.asarray(idx)
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            "a set of samples must be a vector of at least one index, or of one bool for each of "
            f"the {n} samples, not {rows.dtype} of shape {rows.shape}"
        )
    low, high = int(rows.min()), int(rows.max())
    if high >= n or low < -n:
        raise IndexError(
            f"a set of samples has the index {high if high >= n else low}, but there are {n} "
            f"samples: expected indices from 0 to {n - 1}"
        )
    rows = rows.astype(np.int64)  # always a copy, because the caller may fill its array again
    return np.where(rows < 0, rows + n, rows) if low < 0 else rows


class KeptParts:
    """The parts of the last sets on a device: to split one again would wait for the device."""

    MOST = 4  # A, B and C of an iteration, and one more

    def __init__(self) -> None:
        self._known: list[tuple[Any, int, Any]] = []  # a set, its version, and its parts

    def of(self, idx: Any, split: Callable[[Any], Any]) -> Any:
        """What `split` makes of a set, a tensor, on the host."""
        for known, version, parts in self._known:
            if known is idx and version == idx._version:
                return parts
        parts = split(idx.cpu())
        self._known = [(idx, idx._version, parts), *self._known[: self.MOST - 1]]
        return parts

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": []}


def warn_if_constant(problem: FlatProblem, x: Array, elsewhere: Array, few: Any) -> None:
    """Warn of a loss, or residuals, that no parameter changes, and that are not zero.

    They are compared at two points, over all samples only where those of `few` are equal.
    """
    for idx in (few, WHOLE):
        if not problem.value(elsewhere, idx) == problem.value(x, idx) != 0:
            return
    warnings.warn(
        "The loss, or a block of residuals, is the same for other parameters, and not zero: no "
        "parameter changes it. (A net of ReLU has second derivatives of zero: for equations take "
        "a smooth activation, such as tanh.)",
        UserWarning,
        stacklevel=frames_to_the_user(),
    )


# Seeds: one for a problem, and from it one for each set of samples


MAX_SEED = 2**62  # drawn seeds are below this: an int64 can hold them and count on


def seed_from_rng(rng: Any) -> int:
    """The seed of a problem, from any argument of ``numpy.random.default_rng``.

    An integer of at most 64 bits is the seed itself.
    """
    if isinstance(rng, Integral) and 0 <= int(rng) < 2**64:
        return int(rng)
    return draw_seed(rng)


def draw_seed(rng: Any) -> int:
    """A seed drawn from ``numpy.random.default_rng(rng)``."""
    return int(as_generator(rng).integers(MAX_SEED))


def picked_rows(size: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """`count` of `size` rows, drawn uniformly, in ascending order.

    (Every k-th row would be biased for periodic data.)
    """
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(size, count, replace=False, shuffle=False))


def seed_for_set(seed: int, idx: Any) -> int:
    """A seed that depends on the set of samples.

    So the labels, dropout masks and samples drawn for a set are always the same, and those of other
    sets differ.
    """
    content = repr(idx).encode() if isinstance(idx, slice) else to_host(idx).tobytes()
    digest = hashlib.blake2b(content, digest_size=6, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")
