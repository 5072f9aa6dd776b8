"""What is computed at (x, idx): sums over the samples of a model, or a plain function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ksdmin._adapters.arguments import (
    REAL_LOSS,
    check_real,
    noting_foreign_functions,
    noting_samples,
)
from ksdmin._adapters.curvature import DIAGONAL_TOL, Product, is_nonlinear
from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES, WORKING_COPIES, seed_for_set
from ksdmin._adapters.functional.data import Samples, one_ahead
from ksdmin._adapters.functional.jacobian import (
    BUDGET_SHARE,
    ROW_COPIES,
    JacobianRows,
    LinearMatrix,
)
from ksdmin._adapters.functional.kernels import Kernels
from ksdmin._adapters.functional.library import Kernel, Library
from ksdmin._adapters.functional.losses import RandomGenerator
from ksdmin._adapters.model_problem import Sums, SumsOverSamples, product_cost
from ksdmin._problem.arrays import Array, refuse_none
from ksdmin._problem.values import changed

# So many samples show the memory and the linearity of a model. The memory of one sample follows
# from the difference between all of them and half of them, in which shared memory cancels.
MEMORY_PROBE_SAMPLES = 8


class SampleSums(SumsOverSamples):
    """Sums over the samples of a set, chunk by chunk."""

    samples: Samples
    product_cost: float | None = None  # as in :class:`Traits`; None where it is not counted
    linear_matrix: LinearMatrix | None = None
    jacobian_rows: JacobianRows | None = None

    def __init__(
        self,
        kernels: Kernels,
        samples: Samples,
        # Of the labels that "fisher" draws, and of the samples that the diagonal is estimated from.
        seed: int,
        x: Array,
        chunk_size: int | None,  # how many samples are computed at once
        budget: float,  # by default as many as take so many bytes
        # Whether it is a block of residuals, which has rows of its Jacobian where it is linear,
        # too: others may need them.
        of_block: bool,
    ) -> None:
        self.samples, self.seed, self._kernels = samples, seed, kernels
        n, library = samples.n, kernels.library
        probe, bytes_per_sample = self._probe_memory(x)
        self._preferred = library.preferred_rows(x, bytes_per_sample)
        self.library = library = library.for_data(x, n, self._preferred)
        self.samples = changed(samples, _library=library)
        self._compiled = self._compiled_by(library)
        self._set_up = library.compile(kernels.set_up)
        self._multiply = library.compile(kernels.multiply)
        self._max_kept_samples = max(1, int(budget // (WORKING_COPIES * bytes_per_sample)))
        self._max_rows = int(chunk_size or min(self._max_kept_samples, n))
        room = int(budget // (WORKING_COPIES * x.dtype.itemsize * self._max_rows))
        entries, at_once = library.prepare_per_sample(kernels.losses, x, probe, room)
        bytes_per_gradient = max(1, entries) * x.dtype.itemsize
        max_gradients = max(1, int(budget // (WORKING_COPIES * bytes_per_gradient)))
        self._max_rows_per_sample = min(self._max_rows, max_gradients)
        self.max_diagonal_samples = n if at_once else DIAGONAL_SAMPLES
        # how many outputs a sample has
        self.elements = math.prod(library.shape_of(kernels.outputs_of_chunk, x, probe)[1:])
        rows = self._jacobian_rows(x, budget)
        self.nonlinear = self._is_nonlinear(x, rows)
        self.linear_matrix = self._linear_matrix(x, budget)
        if rows and (self.nonlinear or of_block) and self._has_diagonal_hessian(x, probe):
            self.jacobian_rows = rows
            counted = library.operations(kernels.losses, x, probe)
            if counted is not None:
                self.product_cost = product_cost(*counted, min(MEMORY_PROBE_SAMPLES, n))

    def _compiled_by(self, library: Library) -> dict[str, Kernel]:
        return {
            kind: library.compile(getattr(self._kernels, kind))
            for kind in ("value", "gradient", "diagonal")
        }

    def compiled_by(self, library: Library) -> SampleSums:
        """The same, with values and gradients compiled by another library object."""
        return changed(self, _compiled=self._compiled_by(library))

    def _linear_matrix(self, x: Array, budget: float) -> LinearMatrix | None:
        """What computes the curvature matrix of a linear model, if affordable."""
        if self._kernels.curvature == "fisher" or self.nonlinear:
            return None
        n, k, library = x.shape[0], self.elements, self.library
        if self.samples.n * k * n * x.dtype.itemsize > BUDGET_SHARE * budget:
            return None
        return LinearMatrix(library, self._kernels, self.samples, k, n)

    def _jacobian_rows(self, x: Array, budget: float) -> JacobianRows | None:
        """What computes the rows of the Jacobian of any other model, if they fit into memory."""
        if self.library.rows_of_samples is None or self._kernels.curvature != "gauss-newton":
            return None
        most = int(budget // (ROW_COPIES * self.elements * x.shape[0] * x.dtype.itemsize))
        too_few = most < min(self._preferred, self.samples.n)
        if too_few or self._kernels.loss.has_diagonal_hessian is False:
            return None
        self._max_jacobian_rows = min(most, self._max_rows)
        return JacobianRows(self.library, self._kernels, self.elements)

    def _has_diagonal_hessian(self, x: Array, probe: Any) -> bool:
        """Whether the Hessian of the losses is diagonal; tested if not known."""
        known = self._kernels.loss.has_diagonal_hessian
        if known is not None:
            return known
        return float(self.library.compile(self._kernels.off_diagonal)(x, probe)) <= DIAGONAL_TOL

    def matrix(self, kernel: LinearMatrix, x: Array, idx: Any, precision: Any = None) -> Array:
        return kernel(x, idx)

    def jacobian(
        self, kernel: JacobianRows, x: Array, idx: Any, precision: Any = None
    ) -> list[Array]:
        """The rows of the samples of a set, slopes and roots; padding has rows of zeros."""
        chunks = self._chunks(idx, self._max_jacobian_rows)
        return self._joined([kernel.rows(x, chunk) for chunk in chunks], x)

    def slopes(
        self, kernel: JacobianRows, x: Array, idx: Any, precision: Any = None
    ) -> tuple[float, Array]:
        """The sum of the losses, and their slopes in the outputs, with the same padding."""
        chunks = self._chunks(idx, self._max_jacobian_rows)
        found = [kernel.losses_and_slopes(x, chunk) for chunk in chunks]
        total = sum(_on_host(losses) for losses, *_ in found)
        return total, self._joined([(slopes,) for _, slopes, _ in found], x)[0]

    def _joined(self, found: list[tuple[Array, ...]], x: Array) -> list[Array]:
        """The outputs of all chunks, joined, as arrays like x."""
        given = [[self.library.as_given(part, x) for part in parts] for parts in found]
        if len(given) == 1:
            return given[0]
        xp = np if isinstance(x, np.ndarray) else self.library.xp
        return [xp.concatenate(parts) for parts in zip(*given, strict=True)]

    def _probe_memory(self, x: Array) -> tuple[Any, int]:
        """A few samples, and how many bytes a forward pass keeps for each."""
        many = min(MEMORY_PROBE_SAMPLES, self.samples.n)
        half = max(1, many // 2)
        chunks = {rows: next(self.samples.chunks(slice(rows), rows)) for rows in (many, half)}
        library, set_up = self._kernels.library, self._kernels.set_up
        kept = {
            rows: library.bytes_kept(set_up, x, chunk, self._generator(0))
            for rows, chunk in chunks.items()
        }
        return chunks[many], max(1, (kept[many] - kept[half]) // max(1, many - half))

    def _is_nonlinear(self, x: Array, rows: JacobianRows | None) -> bool:
        """Whether the model is nonlinear, by outputs of a function that a run compiles anyway."""
        probe = slice(min(MEMORY_PROBE_SAMPLES, self.samples.n))
        chunk = next(self._chunks(probe, self._max_rows))
        of_chunk = self.library.compile(self._kernels.outputs_of_chunk)

        def outputs(x: Array) -> Array:
            if self._kernels.curvature == "hessian":
                return of_chunk(x, chunk)
            if rows is not None and self._kernels.loss.has_diagonal_hessian:
                return rows.losses_and_slopes(x, chunk)[2]
            return self._set_up(x, chunk, self._generator(0))[1]

        return is_nonlinear(outputs, np.asarray(x))

    def total(self, kind: str, x: Array, idx: Any, precision: Any = None) -> tuple[Any, ...]:
        if kind == "value" and not self.library.compiles_values(self.samples.n, self._preferred):
            return self.total("gradient", x, idx)[:1]
        max_rows = self._max_rows_per_sample if kind == "diagonal" else self._max_rows
        total, sums = 0.0, None
        chunks = self._chunks(idx, max_rows)
        for losses, *results in one_ahead(self._compiled[kind](x, chunk) for chunk in chunks):
            vectors = [self.library.as_given(u, x) for u in results]
            total += _on_host(losses)
            sums = vectors if sums is None else [a + b for a, b in zip(sums, vectors, strict=True)]
        return total, *(sums or ())

    def product(
        self, x: Array, idx: Any, precision: Any, on_recompute: Callable[[], None]
    ) -> Product:
        """The sum of the products; what they share is computed again if it exceeds the memory."""
        fits = self.size(idx) <= self._max_kept_samples
        seed = seed_for_set(self.seed, idx)

        def states() -> Iterator[Any]:
            for i, chunk in enumerate(self._chunks(idx, self._max_rows)):
                yield self._set_up(x, chunk, self._generator(seed + i))

        kept = list(states()) if fits else None

        def multiply(v: Array) -> Array:
            if not fits:
                on_recompute()
            products = one_ahead(self._multiply(state, v) for state in kept or states())
            total = self.library.as_given(next(products), v)
            for product in products:
                total = total + self.library.as_given(product, v)
            return total

        return multiply

    def _generator(self, seed: int) -> RandomGenerator | None:
        fisher = self._kernels.curvature == "fisher"
        return self._kernels.library.random_generator(seed) if fisher else None

    def _chunks(self, idx: Any, max_rows: int) -> Iterator[Any]:
        size, n = self.size(idx), self.samples.n
        rows = self.library.chunk_rows(size, n, max_rows, self._preferred)
        return self.samples.chunks(idx, rows)


def _on_host(partial_sums: Array) -> float:
    """The sum of a few sums, in float64."""
    return float(np.sum(np.asarray(partial_sums), dtype=np.float64))


# A plain function of the parameters


class PlainFunction(Sums):
    """A function as a sum of one term: ``function(x)``, or the mean ``function(x, idx)``."""

    elements, nonlinear = 1, False  # of outputs that it has not
    linear_matrix = jacobian_rows = product_cost = None

    def __init__(self, library: Library, function: Callable[..., Any], sampled: bool) -> None:
        self._library, self._function, self._sampled = library, function, sampled
        self._raw: dict[str, Kernel] = {
            "value": self._value,
            "gradient": self._gradient,
            "product": self._set_up,
        }
        self._compiled = {name: library.compile(kernel) for name, kernel in self._raw.items()}
        self._compiled_for_slice: dict[tuple[str, str], Kernel] = {}
        self._multiply = library.compile(lambda state, v: state(v))

    def total(self, kind: str, x: Array, idx: Any, precision: Any = None) -> tuple[Any, ...]:
        value, *gradient = self._kernel(kind, idx)(x)
        return float(value), *(self._library.as_given(g, x) for g in gradient)

    def product(
        self, x: Array, idx: Any, precision: Any, on_recompute: Callable[[], None]
    ) -> Product:
        state = self._kernel("product", idx)(x)
        return lambda v: self._library.as_given(self._multiply(state, v), v)

    def _kernel(self, kind: str, idx: Any) -> Kernel:
        """The kernel at `idx`: compiled for all arrays of one shape, or for one slice."""
        if isinstance(idx, slice):
            key = kind, str(idx)
            if key not in self._compiled_for_slice:
                kernel = partial(self._raw[kind], idx)
                self._compiled_for_slice[key] = self._library.compile(kernel)
            return self._compiled_for_slice[key]
        if not self._sampled:
            raise ValueError("a function of the parameters alone was asked for some samples only")
        kernels = self._compiled if self._library.compiles_for(idx) else self._raw
        return partial(kernels[kind], idx)

    def _value(self, idx: Any, x: Array) -> tuple[Array]:
        with noting_samples(self._sampled), noting_foreign_functions():
            value = self._function(x, idx) if self._sampled else self._function(x)
        refuse_none(value, "the function")
        if isinstance(value, (tuple, list)):
            raise TypeError(
                f"the function must return a scalar, not a {type(value).__name__}: return the "
                "value alone, and compute the rest at res.x"
            )
        shape = tuple(getattr(value, "shape", ()))
        if math.prod(shape) != 1:
            raise ValueError(f"the function must return a scalar, not an array of shape {shape}")
        check_real(value, "the function", REAL_LOSS)
        return (self._library.xp.sum(value),)

    def _gradient(self, idx: Any, x: Array) -> tuple[Array, Array]:
        value, pullback = self._library.vjp(lambda x: self._value(idx, x)[0], x)
        return value, pullback(self._library.xp.ones_like(value))

    def _set_up(self, idx: Any, x: Array) -> Product:
        """The product v -> Hv: the Hessian, symmetric, is its own transpose."""
        return self._library.vjp(lambda x: self._gradient(idx, x)[1], x)[1]
