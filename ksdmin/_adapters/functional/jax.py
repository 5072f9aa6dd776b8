"""Functions of jax as problems: compiled, on the device of the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial, register_dataclass, tree_leaves, tree_map

from ksdmin._adapters.arguments import Arguments
from ksdmin._adapters.array_function import ArrayFunction
from ksdmin._adapters.blocks import BlockProblem
from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat_problem import VALUE_NOISE, is_gradient
from ksdmin._adapters.functional.jax_arrays import (
    QUICK,
    Program,
    automatic,
    copied_like,
    flatten,
    is_elsewhere,
    is_on_host,
    paths,
    platform_of,
    refuse_traced,
)
from ksdmin._adapters.functional.jax_chunks import (
    Picked,
    as_chunk,
    entries_formed,
    gradients,
    operations,
    picked,
    summed,
    taken,
)
from ksdmin._adapters.functional.library import Chunk, Kernel, Library
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._adapters.functional.problem import build as build_functional
from ksdmin._adapters.names import Names
from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.subsets import Subsets

PRECISIONS = ("highest", "high")
# So many losses are added on the device, in float32: few enough that their sum is exact to about
# 1e-7. The sums of such blocks are added on the host, in float64.
SUM_BLOCK = 256
# What a forward pass keeps for the samples of a chunk, in bytes. On a CPU so many samples take as
# long as the overhead of a compiled function (0.2 ms): a small set may waste that much by padding.
# Other devices compute far more in that time.
CHUNK_BYTES = {"cpu": 2**18}
CHUNK_BYTES_ELSEWHERE = 2**24
MIN_CHUNK_ROWS = 64
# From so many chunks on, the whole set has a separate function, compiled for all samples at once.
# It copies no rows, and its compilation is short compared with its calls.
CHUNKS_OF_LARGE_DATA = 8


class Jax(Library):
    """The operations of :class:`Library`."""

    xp = jnp
    logsumexp = staticmethod(jax.nn.logsumexp)

    def __init__(
        self,
        precision: str,  # of matrix products in float32
        # Whether it is for small data on a CPU: compiling takes longer than computing then.
        small: bool = False,
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision={precision!r}: expected one of {PRECISIONS}")
        self.noise, self._precision = VALUE_NOISE[precision], precision
        self._small = small

    @property
    def finer(self) -> Jax | None:
        return None if self._precision == "highest" else Jax("highest", self._small)

    flatten = staticmethod(flatten)
    paths = staticmethod(paths)

    def compile(self, kernel: Kernel) -> Kernel:
        def traced(*args: Any) -> Any:
            with jax.default_matmul_precision(self._precision):
                return kernel(*map(as_chunk, args))

        return Program(traced, QUICK if self._small else None)

    def for_data(self, x: Array, n: int, preferred: int) -> Jax:
        """The same; for small data on a CPU it compiles less, and faster."""
        small = platform_of(x) == "cpu" and not self.compiles_values(n, preferred)
        return Jax(self._precision, small)

    def as_given(self, result: Array, x: Array) -> Array:
        return np.asarray(result) if isinstance(x, np.ndarray) else result

    def compiles_for(self, idx: Any) -> bool:
        return all(isinstance(leaf, (np.ndarray, jax.Array, int)) for leaf in tree_leaves(idx))

    def vjp(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Product]:
        """f(x) and u -> J^T u, which may be returned by a compiled kernel."""
        y, pullback = jax.vjp(f, x)
        return y, Partial(_pullback_in(y.dtype), pullback)  # type: ignore[no-untyped-call]

    def linearize(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Any]:
        return self.vjp(f, x)

    def jacobian(self, linearized: Any, z: Array) -> tuple[Product, Product]:
        """v -> J v, made by transposing u -> J^T u, and the latter."""
        return lambda v: jax.linear_transpose(linearized, z)(v)[0], linearized

    def columns(self, product: Product, units: Array) -> Array:
        return jax.vmap(product)(units)

    def rows_of_samples(
        self, outputs: Callable[[Array, Any], Array], x: Array, inputs: Any
    ) -> tuple[Array, Array]:
        """The outputs of each sample, and their derivatives, by a reverse pass for each."""

        def of_sample(one: Any) -> tuple[Array, Array]:
            def twice(x: Array) -> tuple[Array, Array]:
                z = outputs(x, tree_map(lambda part: part[None], one))[0]
                return z, z

            J, z = jax.jacrev(twice, has_aux=True)(x)
            return z, J

        return jax.vmap(of_sample)(inputs)

    def prepare_per_sample(
        self, losses: Kernel, x: Array, chunk: Chunk, room: int
    ) -> tuple[int, bool]:
        """How many entries of each sample's gradient are formed; True: for many samples at once.

        If all fit into memory, they need not be counted: tracing takes 0.1 s.
        """
        entries: int = x.shape[0]
        return entries if entries <= room else entries_formed(losses, x, chunk), True

    def per_sample_sums(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        values, each = gradients(losses, x, chunk)
        return values, summed(each, chunk.w, 1), summed(each, chunk.w**2, 2)

    def partial_sums(self, u: Array) -> Array:
        padded = jnp.pad(u, (0, -u.shape[0] % SUM_BLOCK))
        return jnp.sum(padded.reshape(-1, SUM_BLOCK), axis=1)

    def shape_of(self, kernel: Kernel, *args: Any) -> tuple[int, ...]:
        return tuple(_shapes(kernel, *args).shape)

    def operations(self, kernel: Kernel, *args: Any) -> tuple[float, float] | None:
        return operations(jax.make_jaxpr(kernel)(*map(as_chunk, args)).jaxpr)

    def bytes_kept(self, kernel: Kernel, *args: Any) -> int:
        leaves = tree_leaves(_shapes(kernel, *args))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def preferred_rows(self, x: Array, bytes_per_sample: int) -> int:
        kept = CHUNK_BYTES.get(platform_of(x), CHUNK_BYTES_ELSEWHERE)
        return max(MIN_CHUNK_ROWS, kept // bytes_per_sample)

    def compiles_values(self, n: int, preferred: int) -> bool:
        """False for small data: compiling would take longer than the gradients that it saves."""
        return n >= CHUNKS_OF_LARGE_DATA * preferred

    def chunk_rows(self, size: int, n: int, max_rows: int, preferred: int) -> int | None:
        """One length for sets of all sizes, so that a kernel is compiled once."""
        if size == n <= max_rows and self.compiles_values(n, preferred):
            return None
        chunks = -(-n // min(max_rows, preferred))
        return -(-n // chunks)

    def to_device(self, array: Array, x: Array) -> Array:
        return automatic(array) if isinstance(array, jax.Array) else copied_like(array, x)

    def chunk(self, data: Any, weights: Array, rows: Any, samples: int) -> Chunk | Picked:
        """Some of the samples; those of host arrays stay on the host until they are used."""
        leaves = tree_leaves(data)
        some_on_device = rows is not None and all(isinstance(leaf, jax.Array) for leaf in leaves)
        if some_on_device and not (self._small and all(map(is_on_host, leaves))):
            return picked(data, weights, np.asarray(rows), samples)
        chunk: Chunk = super().chunk(data, weights, rows, samples)
        if not some_on_device or not is_elsewhere(leaves[0]):
            return chunk
        # the other arguments follow the weights to the device of the data
        return chunk._replace(w=jax.device_put(chunk.w, leaves[0].device))

    def taken(self, array: Array, rows: Any) -> Array:
        """On a CPU jax has its arrays on the host, too: numpy takes their rows as fast."""
        return np.asarray(array).take(rows, axis=0) if is_on_host(array) else taken(array, rows)

    def random_generator(self, seed: int) -> JaxGenerator:
        return JaxGenerator(np.uint32(seed % 2**32))


def _shapes(kernel: Kernel, *args: Any) -> Any:
    """The shapes of what a kernel returns; nothing is computed."""
    return jax.eval_shape(lambda *args: kernel(*map(as_chunk, args)), *args)


@partial(register_dataclass, data_fields=["seed"], meta_fields=[])
@dataclass(frozen=True)
class JaxGenerator:
    """Random arrays with the method names of numpy's Generator; each loss draws once."""

    seed: Any

    @property
    def key(self) -> Any:
        return jax.random.key(self.seed, impl="threefry2x32")  # the one that has poisson

    def standard_normal(self, size: Any) -> Array:
        return jax.random.normal(self.key, size)

    def random(self, size: Any) -> Array:
        return jax.random.uniform(self.key, size)

    def gumbel(self, *, size: Any) -> Array:
        return jax.random.gumbel(self.key, size)

    def poisson(self, lam: Array) -> Array:
        return jax.random.poisson(self.key, lam)


@lru_cache
def _pullback_in(dtype: Any) -> Callable[[Any, Array], Array]:
    """One function for each dtype: jax would compile kernels again for a new function object."""

    def apply(pullback: Any, u: Array) -> Array:
        return pullback(u.astype(dtype))[0]

    return apply


def build(asked: Arguments) -> FunctionalProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_jax`."""
    refuse_traced(asked.data, asked.params, asked.x0)
    return build_functional(Jax(asked.precision), asked)


# A function that ``minimize`` got with a jax array and without derivatives


def tried(
    fun: Callable[..., Any],
    x0: Array,
    subsets: Subsets | None,
    whole: Any,
    precond: Any,
    bounded: bool,
) -> FunctionalProblem | None:
    """The problem of a function that jax can trace; None if it cannot, or not correctly.

    The function is evaluated at x0, eagerly and compiled, and without bounds at two points near it,
    to check that its value depends on x only and that its gradient is complete.
    """
    asked = Arguments(fun, x0=x0, subsets=subsets, precond=precond)
    problem = build_functional(Jax("highest"), asked)
    assert isinstance(problem, FunctionalProblem)
    value, g = problem.value_and_gradient(x0, whole)
    eager = float(np.asarray(fun(x0, *(() if subsets is None else (whole,)))).reshape(()))
    problem.spent.append((2, 1) if bounded else (4, 1))
    faithful = _agree(value, eager, x0) and (bounded or is_gradient(problem, x0, g, whole))
    return problem if faithful else None


def _agree(compiled: float, eager: float, x0: Array) -> bool:
    """Whether the function has the same value, up to rounding."""
    alike = abs(compiled - eager) <= Space(x0).eps ** 0.5 * max(abs(compiled), abs(eager))
    return alike or not (math.isfinite(compiled) or math.isfinite(eager))


# Residuals of jax arrays for a fit on the host: compiled, with their Jacobian, on the device


class HostFunction(ArrayFunction):
    """A function of arrays of jax; where jax cannot trace it, it is called as it is."""

    def __init__(self, fun: Any, x0: Any) -> None:
        refuse_traced(x0)
        self._like, self._unflatten = flatten(x0)
        self._fun, self._tree = fun, x0
        if not self._like.shape[0]:
            raise ValueError("x0 is empty: there is nothing to minimise over")
        self.x0 = to_host(self._like)
        library = Jax("highest")
        self._values, self._slopes = library.compile(self._joined), library.compile(self._rows)
        self._traced = False  # whether jax has traced the function

    @staticmethod
    def like(values: Any, array: Array) -> Array:
        return copied_like(np.asarray(values, dtype=jnp.result_type(float)), array)

    def __call__(self, x: Small) -> Any:
        if self._traced:
            values = np.asarray(self._values(self._on_device(x)))
            return values.astype(self._like.dtype, copy=False)  # it has no more digits than x
        made = self._fun(self._unflatten(self._on_device(x)))
        leaves = tree_leaves(made)
        if not any(isinstance(leaf, jax.Array) for leaf in leaves):
            return made  # of numpy, say: who takes it looks at it
        return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves])

    def jacobian(self, x: Small) -> Any:
        """The Jacobian: forward where there are fewer columns than rows, else backward."""
        J = np.asarray(self._slopes(self._on_device(x)))
        self._traced = True
        return J

    def _joined(self, x: Array) -> Array:
        leaves = tree_leaves(self._fun(self._unflatten(x)))
        return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])

    def _rows(self, x: Array) -> Array:
        (m,) = jax.eval_shape(self._joined, x).shape
        made = jax.jacrev(self._joined) if m < x.shape[0] else jax.jacfwd(self._joined)
        return made(x)

    def given(self, x: Small) -> Any:
        return self._unflatten(self._on_device(x))

    def names(self) -> Names:
        return Names(paths(self._tree))

    @property
    def eps(self) -> float:
        return float(np.finfo(self._like.dtype).eps)

    def _on_device(self, x: Small) -> Array:
        return copied_like(np.asarray(x, dtype=self._like.dtype), self._like)
