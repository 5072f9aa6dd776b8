"""Functions of jax as problems: compiled, on the device where the parameters live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial, register_dataclass, tree_leaves

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.functional.build import build as build_functional
from ksdmin._adapters.functional.data import Chunk
from ksdmin._adapters.functional.jax_samples import entries_held, sums_over_samples
from ksdmin._adapters.functional.library import Kernel
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._problem.arrays import Array

NOISE = {"highest": 1e-7, "high": 1e-5}  # relative rounding errors of a mean loss, by precision
BLOCK = 256  # losses that are added on the device, in its precision; the sums are added at home
FEWEST, STEPS = 64, 4  # the shortest chunk, and how many lengths there are up to twice a length


class Jax:
    """The verbs of :class:`Library`; `precision` is that of matrix products in float32."""

    xp = jnp

    def __init__(self, precision: str) -> None:
        if precision not in NOISE:
            raise ValueError(f"precision={precision!r}: expected one of {tuple(NOISE)}")
        self.noise, self._precision = NOISE[precision], precision

    @property
    def exact(self) -> Jax | None:
        """The same in float32, where that is not its precision already."""
        return None if self._precision == "highest" else Jax("highest")

    def logsumexp(self, z: Array, axis: int, keepdims: bool) -> Array:
        """The function of that name in ``scipy.special``."""
        return jax.nn.logsumexp(z, axis=axis, keepdims=keepdims)

    def flatten(self, tree: Any) -> tuple[Array, Callable[[Array], Any]]:
        """All arrays of a tree as one vector, and the way back."""
        return ravel_pytree(tree)

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
        y, pull = jax.vjp(f, x)
        return y, Partial(_pull_as(y.dtype), pull)  # type: ignore[no-untyped-call]

    def linearize(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Any]:
        """f(x), and u -> J^T u."""
        return self.vjp(f, x)

    def jacobian(self, kept: Any, z: Array) -> tuple[Product, Product]:
        """v -> J v, made by transposing u -> J^T u, and the latter."""
        return lambda v: jax.linear_transpose(kept, z)(v)[0], kept

    def prepare(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[int, bool]:
        """How many entries of its gradient `per_sample` holds for each of many samples at once."""
        return entries_held(losses, x, chunk), True

    def per_sample(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """The losses, the sum of their gradients and that of the squares."""
        return sums_over_samples(losses, x, chunk)

    def partial_sums(self, u: Array) -> Array:
        """Sums of some losses each."""
        return jnp.sum(jnp.pad(u, (0, -u.shape[0] % BLOCK)).reshape(-1, BLOCK), axis=1)

    def bytes_kept(self, kernel: Kernel, *args: Any) -> int:
        """How much memory the results of a kernel hold."""
        leaves = tree_leaves(jax.eval_shape(kernel, *args))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def rows(self, size: int, most: int) -> int:
        """One of few lengths, so that few kernels are compiled; at most a quarter is padding."""
        rows = max(FEWEST, -(-size // -(-size // most)))
        step = (1 << (rows - 1).bit_length()) // (2 * STEPS)
        return min(most, -(-rows // step) * step)

    def place(self, array: Array, x: Array) -> Array:
        """An array of data, on the device of `x`."""
        return array if isinstance(array, jax.Array) else jax.device_put(array, x.device)

    def take(self, array: Array, rows: Any) -> Array:
        """Some rows of an array; those of a host array stay there until they are used."""
        if not isinstance(array, jax.Array):
            return array[rows]
        if isinstance(rows, slice):
            rows = np.arange(array.shape[0])[rows]
        return _take(array, rows)

    def weights(self, rows: int, real: int, dtype: Any) -> Array:
        """One for the first `real` of `rows` samples, zero for the others."""
        return _weights(rows, real, dtype)

    def draws(self, seed: int) -> JaxDraws:
        """A source of random numbers."""
        return JaxDraws(jax.random.key(seed, impl="threefry2x32"))  # the one that has poisson


@partial(register_dataclass, data_fields=["key"], meta_fields=[])
@dataclass(frozen=True)
class JaxDraws:
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
def _weights(rows: int, real: int, dtype: Any) -> Array:
    return jnp.asarray(np.arange(rows) < real, dtype=dtype)


@lru_cache
def _pull_as(dtype: Any) -> Callable[[Any, Array], Array]:
    """One function for each dtype: kernels are compiled anew for a function that they never saw."""

    def pull(kept: Any, u: Array) -> Array:
        return kept(u.astype(dtype))[0]

    return pull


def build(
    model: Any, loss: Any, data: Any, *, precision: str, **arguments: Any
) -> FunctionalProblem:
    """The problem of :func:`ksdmin.from_jax`, which has the meaning of the arguments."""
    return build_functional(Jax(precision), model, loss, data, **arguments)
