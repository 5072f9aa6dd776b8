"""Functions of jax as problems: compiled, on the device of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial, register_dataclass, tree_leaves

from ksdmin._adapters.blocks import BlockProblem
from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat_problem import VALUE_NOISE
from ksdmin._adapters.functional.build import build as build_functional
from ksdmin._adapters.functional.jax_leaves import as_floats, flatten
from ksdmin._adapters.functional.jax_per_sample import entries_formed, sums_over_samples
from ksdmin._adapters.functional.library import Chunk, Kernel
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._problem.arrays import Array

PRECISIONS = ("highest", "high")
# Losses that are added on the device, in float32: few enough that their sum is exact to about 1e-7.
# The sums of such blocks are added on the host, in float64.
SUM_BLOCK = 256
# Kernels are compiled for each length of chunks, so there are few lengths: at least 64, as shorter
# ones take as long, and four between one power of two and the next, so that at most a quarter is
# padding.
MIN_CHUNK_ROWS = 64
LENGTHS_PER_DOUBLING = 4


class Jax:
    """The operations of :class:`Library`; `precision` is that of matrix products in float32."""

    xp = jnp

    def __init__(self, precision: str) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision={precision!r}: expected one of {PRECISIONS}")
        self.noise, self._precision = VALUE_NOISE[precision], precision

    @property
    def finer(self) -> Jax | None:
        """The same in float32; None where that is its precision already."""
        return None if self._precision == "highest" else Jax("highest")

    def logsumexp(self, z: Array, axis: int, keepdims: bool) -> Array:
        """The function of that name in ``scipy.special``."""
        return jax.nn.logsumexp(z, axis=axis, keepdims=keepdims)

    def flatten(self, tree: Any) -> tuple[Array, Callable[[Array], Any]]:
        """All floating-point arrays of a tree as one vector, and the inverse function."""
        return flatten(tree)

    def as_floats(self, tree: Any) -> Any:
        """The tree with its whole numbers as floating-point arrays."""
        return as_floats(tree)

    def compile(self, kernel: Kernel, *, shared: bool = False) -> Kernel:
        """The kernel, compiled for each shape of its arguments."""

        def traced(*args: Any) -> Any:
            with jax.default_matmul_precision(self._precision):
                return kernel(*args)

        compiled: Kernel = jax.jit(kernel if shared else traced)
        return compiled

    def compiles_for(self, idx: Any) -> bool:
        """Whether `idx` is made of arrays and numbers."""
        return all(isinstance(leaf, (np.ndarray, jax.Array, int)) for leaf in tree_leaves(idx))

    def vjp(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Product]:
        """f(x) and u -> J^T u, which may be returned by a compiled kernel."""
        y, pullback = jax.vjp(f, x)
        return y, Partial(_pullback_in(y.dtype), pullback)  # type: ignore[no-untyped-call]

    def linearize(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Any]:
        """f(x), and u -> J^T u."""
        return self.vjp(f, x)

    def jacobian(self, linearized: Any, z: Array) -> tuple[Product, Product]:
        """v -> J v, made by transposing u -> J^T u, and the latter."""
        return lambda v: jax.linear_transpose(linearized, z)(v)[0], linearized

    def columns(self, product: Product, units: Array) -> Array:
        """The product of each of the unit vectors, all at once."""
        return jax.vmap(product)(units)

    def prepare_per_sample(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[int, bool]:
        """How many entries of each sample's gradient are formed; True: for many samples at once."""
        return entries_formed(losses, x, chunk), True

    def per_sample_sums(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """The losses, the sum of their gradients and that of the squared gradients."""
        return sums_over_samples(losses, x, chunk)

    def partial_sums(self, u: Array) -> Array:
        """The sums of blocks."""
        padded = jnp.pad(u, (0, -u.shape[0] % SUM_BLOCK))
        return jnp.sum(padded.reshape(-1, SUM_BLOCK), axis=1)

    def bytes_kept(self, kernel: Kernel, *args: Any) -> int:
        """How much memory the results of a kernel hold."""
        leaves = tree_leaves(jax.eval_shape(kernel, *args))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def chunk_rows(self, size: int, max_rows: int) -> int:
        """One of few lengths, so that few kernels are compiled; at most a quarter is padding."""
        rows = max(MIN_CHUNK_ROWS, -(-size // -(-size // max_rows)))
        step = (1 << (rows - 1).bit_length()) // (2 * LENGTHS_PER_DOUBLING)
        return min(max_rows, -(-rows // step) * step)

    def to_device(self, array: Array, x: Array) -> Array:
        """An array of data, on the device of `x`."""
        return array if isinstance(array, jax.Array) else jax.device_put(array, x.device)

    def take(self, array: Array, rows: Any) -> Array:
        """Some rows of an array; those of a host array stay there until they are used."""
        if not isinstance(array, jax.Array):
            return array[rows]
        if isinstance(rows, slice):
            rows = np.arange(array.shape[0])[rows]
        return _take(array, rows)

    def weights(self, rows: int, samples: int, dtype: Any) -> Array:
        """One for the first `samples` of `rows` rows, zero for the padding."""
        return _weights(rows, samples, dtype)

    def random_generator(self, seed: int) -> JaxGenerator:
        """A source of random numbers."""
        return JaxGenerator(jax.random.key(seed, impl="threefry2x32"))  # the one that has poisson


@partial(register_dataclass, data_fields=["key"], meta_fields=[])
@dataclass(frozen=True)
class JaxGenerator:
    """Random arrays under the names of numpy's Generator; each loss draws once."""

    key: Any

    def standard_normal(self, size: Any) -> Array:
        """Normal numbers."""
        return jax.random.normal(self.key, size)

    def random(self, size: Any) -> Array:
        """Numbers uniform between 0 and 1."""
        return jax.random.uniform(self.key, size)

    def gumbel(self, *, size: Any) -> Array:
        """Numbers whose largest, added to logits, picks a class."""
        return jax.random.gumbel(self.key, size)

    def poisson(self, lam: Array) -> Array:
        """Counts."""
        return jax.random.poisson(self.key, lam)


@jax.jit
def _take(array: Array, rows: Array) -> Array:
    return array[rows]


@lru_cache(maxsize=64)
def _weights(rows: int, samples: int, dtype: Any) -> Array:
    return jnp.asarray(np.arange(rows) < samples, dtype=dtype)


@lru_cache
def _pullback_in(dtype: Any) -> Callable[[Any, Array], Array]:
    """One function for each dtype: a new function object would have kernels compiled again."""

    def apply(pullback: Any, u: Array) -> Array:
        return pullback(u.astype(dtype))[0]

    return apply


def build(
    model: Any, loss: Any, data: Any, *, precision: str, **arguments: Any
) -> FunctionalProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_jax`, which documents the arguments."""
    return build_functional(Jax(precision), model, loss, data, **arguments)
