"""The border: tall arrays stay where the user keeps them, small ones come to the host.

A vector of length n and a basis of such vectors live in the user's namespace, dtype and device.
What has one entry per basis vector is float64 numpy on the host. Nothing else in the core knows
about namespaces.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_jax_array,
    is_numpy_array,
    is_torch_array,
)
from scipy.linalg import lapack
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from ksdmin._libraries import file_of, library_of
from ksdmin._problem.values import made

TRACED = (
    "minimize cannot run within jax.jit, jax.vmap or jax.grad, where arrays have no values yet: "
    "call it outside of them"
)


def is_traced(x: Any) -> bool:
    """Whether `x` is a jax tracer."""
    return is_jax_array(x) and bool(file_of(library_of(x)).is_traced(x))


def namespace_of(x: Any) -> Any:
    """The namespace of an array.

    Jax arrays are handled here: array_api_compat would create an array to ask, for which jax
    compiles two functions.
    """
    return x.__array_namespace__() if is_jax_array(x) else array_namespace(x)


Array = Any
"""A tall array in the user's namespace; the array API has no static type yet."""

Small = npt.NDArray[Any]
"""A small array on the host: float64 numpy, one entry (or row) per basis vector."""

EPS = sys.float_info.epsilon
"""The rounding of float64."""

_in_double = partial(np.asarray, dtype=np.float64)

PRODUCT_BLOCKS = 8  # of a symmetric product: each is large enough to use a device fully


class Space:
    """Where the vectors of a run live: their namespace, dtype, device and length."""

    hosted = False  # whether user code uses another library: see `HostedSpace`

    def __init__(self, x: Array) -> None:
        self.xp = namespace_of(x)
        self.numpy = is_numpy_array(x)
        self.dtype = x.dtype
        self.device = device(x)
        known = library_of(x)
        self.library = "numpy" if self.numpy else known or str(self.xp.__name__)
        self.native = file_of(known)  # operations beyond the array API
        self.remote = is_torch_array(x) and x.is_cuda  # runs while the host continues
        if self.numpy:  # the same numbers as the operator, with half of its overhead
            self.inner = self.times = np.ndarray.dot
        if self.numpy and not self.hosted:  # the copy itself, which every evaluation makes
            self.given = np.ndarray.copy  # type: ignore[method-assign,assignment]
        self._immutable = is_jax_array(x)
        self.n = int(x.shape[0])
        info = self.xp.finfo(x.dtype)
        self.eps, self.itemsize = float(info.eps), int(info.bits) // 8
        self.vector_bytes = self.n * self.itemsize
        self.recorded: dict[Any, Any] = {}  # on a CUDA device: see `repeated`

    def __reduce__(self) -> Any:
        return Space, (self.unit(0),)  # a namespace is a module: it cannot be pickled

    def holds(self, x: Array) -> bool:
        """Whether `x` is a vector of this space."""
        if type(x) is np.ndarray:
            return self.numpy and x.shape == (self.n,) and x.dtype == self.dtype
        return (
            x.shape == (self.n,)
            and x.dtype == self.dtype
            and is_numpy_array(x) == self.numpy
            and (self.numpy or (namespace_of(x) is self.xp and device(x) == self.device))
        )

    def vector(self, u: Any, origin: str) -> Array:
        """Our own copy of a vector that user code (`origin`) returned: checked, in our dtype."""
        if not self.numpy:
            u = self.checked(u, origin)
            return self.xp.reshape(self.xp.asarray(u, dtype=self.dtype, copy=True), (self.n,))
        if type(u) is np.ndarray and u.shape == (self.n,) and u.dtype == self.dtype:
            return u.copy()  # the usual case
        refuse_none(u, origin)
        u = np.asarray(u)
        self._check(u, origin)
        return np.array(u, dtype=self.dtype).reshape(self.n)

    def checked(self, u: Any, origin: str) -> Array:
        """A vector that user code (`origin`) returned, if it is one of this library."""
        refuse_none(u, origin)
        if isinstance(u, (int, float)):
            u = self.xp.asarray(u, dtype=self.dtype, device=self.device)
        if not is_array_api_obj(u) or namespace_of(u) is not self.xp:
            raise TypeError(self._stranger(u, origin))
        if device(u) != self.device:
            raise TypeError(f"{origin} returned an array on {device(u)}; x0 is on {self.device}")
        self._check(u, origin)
        return detached(u)

    def matrix(self, H: Any, origin: str) -> Any:
        """The Hessian that user code returned, if ``H @ v`` will be a vector of this space."""
        refuse_none(H, origin)
        operator = issparse(H) or isinstance(H, LinearOperator)
        if self.numpy and not operator:
            H = np.array(H, ndmin=2)  # a copy: the user may fill the same array again
        elif not self.numpy and (not is_array_api_obj(H) or namespace_of(H) is not self.xp):
            raise TypeError(self._stranger(H, origin))
        if tuple(H.shape) != (self.n, self.n):
            raise ValueError(
                f"{origin} returned shape {tuple(H.shape)}, expected ({self.n}, {self.n})"
            )
        if operator:
            return H
        self._check_real(H, origin)
        return H if self.numpy else self.xp.asarray(detached(H), dtype=self.dtype, copy=True)

    def product(self, H: Any, v: Array, origin: str) -> Array:
        """H v, for what `matrix` returned."""
        return self.vector(H @ v, origin)

    def _stranger(self, u: Any, origin: str) -> str:
        return (
            f"{origin} returned {type(u).__module__}.{type(u).__name__}, but x0 is an array of "
            f"{self.xp.__name__}: return the same kind of array, or convert x0"
        )

    def _check(self, u: Any, origin: str) -> None:
        if u.shape != (self.n,) and not (self.n == 1 and u.shape == ()):
            raise ValueError(f"{origin} returned shape {tuple(u.shape)}, expected ({self.n},)")
        self._check_real(u, origin)

    def _check_real(self, u: Any, origin: str) -> None:
        kinds = ("real floating", "integral")
        if not (u.dtype.kind in "fiub" if self.numpy else self.xp.isdtype(u.dtype, kinds)):
            raise TypeError(f"{origin} returned values that are not real numbers")

    def copy(self, x: Array) -> Array:
        """A fresh copy."""
        return x.copy() if self.numpy else self.xp.asarray(x, copy=True)

    def taken(self, x: Array) -> Array:
        """A vector of the user, as a run keeps it."""
        return x

    def given(self, x: Array) -> Array:
        """A fresh copy that user code may keep or overwrite."""
        return self.copy(x)

    def unit(self, i: int = 0) -> Array:
        """The unit vector e_(i+1), in the dtype and on the device of the run."""
        zeros = self.xp.zeros((1, self.n), dtype=self.dtype, device=self.device)
        return self.put(zeros, (0, i), 1.0)[0, :]

    def diagonal_matrix(self, entries: Any) -> Array:
        """The matrix with these `entries` (or one number) on its diagonal."""
        return self.xp.eye(self.n, dtype=self.dtype, device=self.device) * entries

    def rows(self, *capacity: int) -> Array:
        """An array for `capacity` vectors, one per row."""
        if self.numpy:
            return np.empty((*capacity, self.n), dtype=self.dtype)
        return self.xp.empty((*capacity, self.n), dtype=self.dtype, device=self.device)

    def put(self, V: Array, where: Any, what: Any) -> Array:
        """`V` with `what` at `where`, in place except for immutable arrays (jax)."""
        if self._immutable:
            return V.at[where].set(what)
        V[where] = what
        return V

    def put_scaled(self, V: Array, k: int, u: Array, scale: Any) -> Array:
        """`V` with ``scale * u`` in row k, in place except for immutable arrays (jax)."""
        if not self.numpy:
            return self.put(V, (k, slice(None)), scale * u)
        np.multiply(u, scale, out=V[k])
        return V

    def products_of_pair(self, s: Array, y: Array) -> list[float]:
        """s^T y, s^T s and y^T y; without a warning if they are not finite."""
        if self.numpy:  # the same numbers as `inner`, which warns
            return [float(np.vdot(s, y)), float(np.vdot(s, s)), float(np.vdot(y, y))]
        return self.floats(self.inner(s, y), self.inner(s, s), self.inner(y, y))

    def scaled_pair(self, s: Array, y: Array, scale: float) -> Array:
        """An array of one pair, (scale * s, scale * y), of shape (2, 1, n)."""
        if not self.numpy:
            return (scale * self.xp.stack([s, y]))[:, None, :]
        pair = np.empty((2, 1, self.n), dtype=self.dtype)
        pair[0, 0], pair[1, 0] = s, y
        pair *= scale
        return pair

    # The inner product of two vectors, or of rows with a vector; and the product of small matrices
    # and vectors, or of coefficients and rows. They are the operator itself: a step on a cheap
    # function calls it a dozen times.
    inner: Callable[[Array, Array], Array] = staticmethod(operator.matmul)
    times: Callable[[Array, Array], Array] = staticmethod(operator.matmul)

    def gram(self, U: Array, W: Array) -> Array:
        """The inner products of rows with rows, U W^T; or of each pair of such arrays."""
        if W.ndim == 2:
            return U.dot(W.T) if self.numpy else U @ W.T
        return U @ self.xp.matrix_transpose(W)

    def lower_product(self, A: Array) -> Array:
        """The lower triangle of A A^T; entries above it may be wrong.

        NumPy uses the symmetry by itself. Others multiply block by block, for half the work.
        """
        if self.numpy or self._immutable:
            return A @ A.T
        order = A.shape[0]
        product = self.xp.zeros((order, order), dtype=A.dtype, device=self.device)
        size = math.ceil(order / PRODUCT_BLOCKS)
        for end in range(size, order + size, size):
            rows = slice(end - size, end)
            product[rows, :end] = A[rows, :] @ A[:end, :].T
        return product

    def norm(self, u: Array) -> float:
        """The Euclidean norm."""
        return math.sqrt(self.inner(u, u))

    def max_abs(self, u: Array) -> float:
        """The largest magnitude; NaN if any entry is."""
        if self.numpy:  # argmax finds a NaN, too; max() takes three times as long
            sizes = np.abs(u)
            return float(sizes[sizes.argmax()])
        return float(self.xp.max(self.xp.abs(u)))

    def largest(self, u: Array) -> float:
        """The largest entry."""
        return float(self.xp.max(u))

    def mean(self, u: Array) -> Array:
        """The mean of the entries."""
        return self.xp.mean(u)

    def dots(self, V: Array, u: Array) -> Array:
        """The products of `u` with the rows of V, without a warning if they are not finite."""
        if not self.numpy:
            return self.inner(V, u)
        with np.errstate(all="ignore"):
            return V.dot(u)

    def combine(self, V: Array, c: Small) -> Array:
        """The vector with coefficients `c` in the rows of `V`."""
        return self.times(self.to_device(c), V)

    def to_device(self, c: npt.NDArray[Any]) -> Array:
        """A host array, sent to the device of the tall arrays."""
        if self.numpy:
            return c.astype(self.dtype, copy=False)
        return self.xp.asarray(c, dtype=self.dtype, device=self.device)

    def indices(self, idx: npt.NDArray[np.int64]) -> Array:
        """Sample indices in the namespace and on the device of the run."""
        return idx if self.numpy else self.xp.asarray(idx, device=self.device)

    def to_host(self, *parts: Array) -> list[Small]:
        """Small arrays and scalars fetched to the host, all in one transfer."""
        if self.numpy:
            return list(map(_in_double, parts))
        if len(parts) == 1:
            return [to_host(parts[0])]
        return _split(to_host(self._joined(parts)), parts)

    def floats(self, *scalars: Array) -> list[float]:
        """Scalars fetched to the host, all in one transfer."""
        if self.numpy:
            return list(map(float, scalars))
        fetched: list[float] = to_host(self.xp.stack(scalars)).tolist()
        return fetched

    def to_host_async(self, *parts: Array) -> Callable[[], list[Small]]:
        """The same transfer without waiting; call the result for the arrays.

        The device can do other work meanwhile.
        """
        if self.numpy:
            return lambda: list(map(_in_double, parts))
        joined = self._joined(parts)
        arrived = self.native.transfer(joined) if self.remote else lambda: joined
        return lambda: _split(to_host(arrived()), parts)

    def _joined(self, parts: tuple[Array, ...]) -> Array:
        """All entries in one vector."""
        return self.xp.concat([self.xp.reshape(part, (-1,)) for part in parts])

    def repeated(self, name: str, about: Any, function: Any, *arrays: Array) -> Array:
        """``function(about, *arrays)``; on a CUDA device recorded, and launched as a whole.

        A recording belongs to the function's name, the object `about` and the shapes of the arrays.
        It lives as long as the space.
        """
        if not self.remote or self.native.is_recording():
            return function(about, *arrays)
        key = name, id(about), *(tuple(u.shape) for u in arrays)
        if key not in self.recorded:
            recorded = self.native.Recorded(partial(function, about))
            self.recorded[key] = about, recorded  # `about` keeps its id
        return self.recorded[key][1](*arrays)

    def in_double(self, u: Array) -> Array:
        """In float64; copied only if the dtype differs."""
        return self.xp.astype(u, self.xp.float64, copy=False)

    def in_own_dtype(self, u: Array) -> Array:
        """In the dtype of the vectors; copied only if it differs."""
        return self.xp.astype(u, self.dtype, copy=False)

    def definite_solver(self, M: Array, shift: float) -> Callable[[Array], Array] | None:
        """b -> (M + shift I)^-1 b, by Cholesky factorisation; None if that fails.

        M is symmetric and, up to rounding, positive semidefinite. Its lower triangle is read.
        """
        L = self.lower_factor(M, shift)
        if L is None:
            return None
        if self.numpy:
            return lambda b: lapack.dpotrs(L, b, lower=1)[0]
        if self._immutable:  # its namespace cannot solve with a factor
            return lambda b: self.xp.linalg.solve(L.T, self.xp.linalg.solve(L, b))
        return lambda b: self.xp.cholesky_solve(b[:, None], L)[:, 0]

    def lower_solve(self, L: Array, B: Array, *, transposed: bool = False) -> Array:
        """L^-1 B, or L^-T B, of a lower triangular L and a vector or a matrix."""
        if self.numpy:
            return lapack.dtrtrs(L, B, lower=1, trans=int(transposed))[0]
        if self._immutable:  # its namespace has no solver of triangles
            return self.xp.linalg.solve(L.T if transposed else L, B)
        columns = B if B.ndim == 2 else B[:, None]
        solved = self.xp.linalg.solve_triangular(
            L.T if transposed else L, columns, upper=transposed
        )
        return solved if B.ndim == 2 else solved[:, 0]

    def lower_factor(self, M: Array, shift: float) -> Array | None:
        """L with L L^T = M + shift I, by Cholesky; None if that is not definite.

        Only the lower triangle of M is read.
        """
        shifted = M + shift * self.xp.eye(M.shape[0], dtype=M.dtype, device=self.device)
        if self.numpy:
            L, failed = lapack.dpotrf(shifted, lower=1, overwrite_a=1)
            return None if failed else L
        if self._immutable:  # it returns NaN if it fails
            L = self.xp.linalg.cholesky(shifted)
            return L if math.isfinite(float(self.xp.sum(L))) else None
        L, failed = self.xp.linalg.cholesky_ex(shifted)
        return None if int(failed) else L


def rounded_like(own: Any, x: Array) -> Array:
    """A float64 point, where a run may have ended, rounded for a problem in float32."""
    if not (is_torch_array(own) and is_torch_array(x)):
        return x
    xp = namespace_of(x)
    return x.to(xp.float32) if (own.dtype, x.dtype) == (xp.float32, xp.float64) else x


def refuse_none(u: Any, origin: str) -> None:
    """Raise where user code (`origin`) returned nothing."""
    if u is None:
        raise TypeError(f"{origin} returned None: is a return statement missing?")


def _split(joined: Small, parts: tuple[Array, ...]) -> list[Small]:
    """The entries of `joined`, in the shapes of its `parts`."""
    ends = np.cumsum([math.prod(part.shape) for part in parts])
    pieces = np.split(joined, ends[:-1])
    return [piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)]


def to_host(u: Array) -> Small:
    """A float64 numpy copy of an array of any namespace."""
    return np.array(as_numpy(u), dtype=np.float64)


def as_numpy(u: Array) -> npt.NDArray[Any]:
    """The same in its own dtype, copied only if necessary."""
    return np.asarray(u.detach().cpu().numpy() if is_torch_array(u) else u)


def detached(u: Array) -> Array:
    """`u` without an autograd graph."""
    return u.detach() if getattr(u, "requires_grad", False) else u


# Spare memory behind the entries, per kept entry: when it is full, all entries are copied.
ROOM = 0.25
ALL = slice(None)


class Room:
    """A buffer, and how many of its entries have been written."""

    def __init__(self, buffer: Array) -> None:
        self.buffer, self.written = buffer, 0


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries along the second axis of an array of vectors: a value, which never changes.

    A value with more entries shares the memory: new entries are written behind the old ones, if
    nobody else has written there. Otherwise, or if there is no room, all are copied.
    """

    array: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "_room", None)

    def followed_by(self, space: Space, new: Array, keep: int, capacity: int) -> Entries:
        """These entries and some more; the last `keep` are kept, with room for `capacity`."""
        count = int(new.shape[1])
        if count >= keep:
            return Entries(new[:, count - keep :, :])
        room, stop = vars(self)["_room"] or (None, 0)
        if room is None or room.written != stop or stop + count > room.buffer.shape[1]:
            rows, length, _ = self.array.shape
            room = Room(space.rows(rows, capacity + max(1, int(ROOM * capacity))))
            stop = keep - count
            old = self.array[:, length - stop :, :]
            room.buffer = space.put(room.buffer, (ALL, slice(0, stop), ALL), old)
        where, stop = slice(stop, stop + count), stop + count
        room.buffer = space.put(room.buffer, (ALL, where, ALL), new)
        room.written = stop
        return made(Entries, array=room.buffer[:, stop - keep : stop, :], _room=(room, stop))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, numpy, torch or jax means that memory is short."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # Jax has no class for it; the message begins with a code
    return isinstance(error, RuntimeError) and str(error).startswith("RESOURCE_EXHAUSTED")
