"""What is computed at (x, idx): sums over the samples of a model, or a plain function.

All derivatives come from one operation of a library, ``vjp(f, x) -> (f(x), u -> J^T u)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.arguments import (
    REAL_LOSS,
    check_real,
    noting_foreign_functions,
    noting_samples,
)
from ksdmin._adapters.curvature import DIAGONAL_TOL, Product, SampleLoss, is_nonlinear
from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES, WORKING_COPIES, seed_for_set
from ksdmin._adapters.functional.data import Samples, one_ahead
from ksdmin._adapters.functional.jacobian import (
    BUDGET_SHARE,
    ROW_COPIES,
    JacobianRows,
    LinearMatrix,
)
from ksdmin._adapters.functional.library import Chunk, Kernel, Library
from ksdmin._adapters.functional.losses import RandomGenerator
from ksdmin._adapters.model_problem import Sums, SumsOverSamples, product_cost
from ksdmin._problem.arrays import Array, refuse_none
from ksdmin._problem.values import changed

# So many samples show the memory and the linearity of a model. The memory of one sample follows
# from the difference between all of them and half of them, in which shared memory cancels.
MEMORY_PROBE_SAMPLES = 8


class SampleSums(SumsOverSamples):
    """Sums over the samples of a set, chunk by chunk.

    (For another precision the kernels are compiled differently: see `compiled_by`.)

    Attributes
    ----------
    library : Library
        As it compiles for so many samples.
    elements : int
        How many outputs a sample has.
    nonlinear : bool
        Whether the model is anything but linear in its parameters.
    product_cost : float or None
        As in :class:`Traits`; None where it is not counted.
    """

    samples: Samples

    def __init__(
        self,
        library: Library,
        model: Callable[[Array, Any], Array],  # (x, inputs) -> outputs, one row per sample
        loss: SampleLoss,  # (outputs, targets) -> one loss per sample
        samples: Samples,
        curvature: str,  # a provider's name
        # Of the labels that "fisher" draws, and of the samples that the diagonal is estimated from.
        seed: int,
    ) -> None:
        self._model, self._loss = model, loss
        self.samples, self._curvature, self.seed = samples, curvature, seed
        self._compile(library)
        self._preferred = self.elements = 1
        self.nonlinear = True
        self._max_rows = self._max_rows_per_sample = samples.n
        self._max_kept_samples = self.max_diagonal_samples = samples.n
        self.linear_matrix: LinearMatrix | None = None
        self.jacobian_rows: JacobianRows | None = None
        self.product_cost: float | None = None
        self._max_jacobian_rows = 1

    def _compile(self, library: Library) -> None:
        self.library, self.samples = library, changed(self.samples, _library=library)
        self._kernels = self._compiled(library)
        self._compiled_set_up = library.compile(self._set_up)
        self._compiled_multiply = library.compile(self._multiply)

    def _compiled(self, library: Library) -> dict[str, Kernel]:
        kernels = {"value": self._value, "gradient": self._gradient, "diagonal": self._diagonal}
        return {name: library.compile(kernel) for name, kernel in kernels.items()}

    def compiled_by(self, library: Library) -> SampleSums:
        """The same, with values and gradients compiled by another library object."""
        return changed(self, _kernels=self._compiled(library))

    def fit(
        self, x: Array, chunk_size: int | None, budget: float, *, of_block: bool = False
    ) -> None:
        """Choose how many samples are computed at once, so that they take `budget` bytes.

        A block of residuals has rows of its Jacobian where it is linear, too: others may need them.
        """
        n, library = self.samples.n, self.library
        probe, bytes_per_sample = self._probe_memory(x)
        self._preferred = library.preferred_rows(x, bytes_per_sample)
        self._compile(library.for_data(x, n, self._preferred))
        self._max_kept_samples = max(1, int(budget // (WORKING_COPIES * bytes_per_sample)))
        self._max_rows = int(chunk_size or min(self._max_kept_samples, n))
        room = int(budget // (WORKING_COPIES * x.dtype.itemsize * self._max_rows))
        entries, at_once = library.prepare_per_sample(self._losses, x, probe, room)
        bytes_per_gradient = max(1, entries) * x.dtype.itemsize
        max_gradients = max(1, int(budget // (WORKING_COPIES * bytes_per_gradient)))
        self._max_rows_per_sample = min(self._max_rows, max_gradients)
        self.max_diagonal_samples = n if at_once else DIAGONAL_SAMPLES
        self.elements = math.prod(library.shape_of(self._outputs_of_chunk, x, probe)[1:])
        rows = self._jacobian_rows(x, budget)
        self.nonlinear = self._is_nonlinear(x, rows)
        self.linear_matrix = self._linear_matrix(x, budget)
        if (
            rows is not None
            and (self.nonlinear or of_block)
            and self._has_diagonal_hessian(rows, x, probe)
        ):
            self.jacobian_rows = rows
            counted = library.operations(self._losses, x, probe)
            if counted is not None:
                self.product_cost = product_cost(*counted, min(MEMORY_PROBE_SAMPLES, n))

    def _linear_matrix(self, x: Array, budget: float) -> LinearMatrix | None:
        """What computes the curvature matrix of a linear model, if affordable."""
        if self._curvature == "fisher" or self.nonlinear:
            return None
        entries = self.samples.n * self.elements * x.shape[0]
        if entries * x.dtype.itemsize > BUDGET_SHARE * budget:
            return None
        return LinearMatrix(
            self.library,
            self._outputs,
            self._output_hessian,
            self.samples,
            self.elements,
            x.shape[0],
        )

    def _jacobian_rows(self, x: Array, budget: float) -> JacobianRows | None:
        """What computes the rows of the Jacobian of any other model, if they fit into memory."""
        if not self.library.has_rows or self._curvature != "gauss-newton":
            return None
        most = int(budget // (ROW_COPIES * self.elements * x.shape[0] * x.dtype.itemsize))
        if most < min(self._preferred, self.samples.n) or self._loss.has_diagonal_hessian is False:
            return None
        self._max_jacobian_rows = min(most, self._max_rows)
        parts = self._outputs, self._loss.losses, self._loss_hessian, self._residual
        return JacobianRows(self.library, *parts, self.elements)

    def _has_diagonal_hessian(self, rows: JacobianRows, x: Array, probe: Any) -> bool:
        """Whether the Hessian of the losses is diagonal; tested if not known."""
        known = self._loss.has_diagonal_hessian
        return float(rows.deviation(x, probe)) <= DIAGONAL_TOL if known is None else known

    def matrix(self, kernel: LinearMatrix, x: Array, idx: Any, precision: Any = None) -> Array:
        """The sum of the curvature matrices over a set."""
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
        total = sum(float(np.sum(np.asarray(losses), dtype=np.float64)) for losses, *_ in found)
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
        kept = {
            rows: self.library.bytes_kept(self._compiled_set_up, x, chunk, self._generator(0))
            for rows, chunk in chunks.items()
        }
        return chunks[many], max(1, (kept[many] - kept[half]) // max(1, many - half))

    def _is_nonlinear(self, x: Array, rows: JacobianRows | None) -> bool:
        """Whether the model is nonlinear, by outputs of a function that a run compiles anyway."""
        probe = slice(min(MEMORY_PROBE_SAMPLES, self.samples.n))
        chunk = next(self._chunks(probe, self._max_rows))
        of_chunk = self.library.compile(self._outputs_of_chunk)

        def outputs(x: Array) -> Array:
            if self._curvature == "hessian":
                return of_chunk(x, chunk)
            if rows is not None and self._loss.has_diagonal_hessian:
                return rows.losses_and_slopes(x, chunk)[2]
            return self._compiled_set_up(x, chunk, self._generator(0))[1]

        return is_nonlinear(outputs, np.asarray(x))

    def total(self, kind: str, x: Array, idx: Any, precision: Any = None) -> tuple[Any, ...]:
        """The outputs of a kernel ("value", "gradient", "diagonal"), summed over a set."""
        if kind == "value" and not self.library.compiles_values(self.samples.n, self._preferred):
            return self.total("gradient", x, idx)[:1]
        max_rows = self._max_rows_per_sample if kind == "diagonal" else self._max_rows
        total, sums = 0.0, None
        chunks = self._chunks(idx, max_rows)
        for losses, *results in one_ahead(self._kernels[kind](x, chunk) for chunk in chunks):
            vectors = [self.library.as_given(u, x) for u in results]
            total += float(np.sum(np.asarray(losses), dtype=np.float64))
            sums = vectors if sums is None else [a + b for a, b in zip(sums, vectors, strict=True)]
        return total, *(sums or ())

    def product(
        self, x: Array, idx: Any, precision: Any, on_recompute: Callable[[], None]
    ) -> Product:
        """The sum of the products over a set.

        `on_recompute` is called if a product has to repeat what all of them share, because that
        does not fit into memory.
        """
        fits = self.size(idx) <= self._max_kept_samples
        seed = seed_for_set(self.seed, idx)

        def states() -> Iterator[Any]:
            for i, chunk in enumerate(self._chunks(idx, self._max_rows)):
                yield self._compiled_set_up(x, chunk, self._generator(seed + i))

        kept = list(states()) if fits else None

        def multiply(v: Array) -> Array:
            if not fits:
                on_recompute()
            products = one_ahead(self._compiled_multiply(state, v) for state in kept or states())
            total = self.library.as_given(next(products), v)
            for product in products:
                total = total + self.library.as_given(product, v)
            return total

        return multiply

    def _generator(self, seed: int) -> RandomGenerator | None:
        return self.library.random_generator(seed) if self._curvature == "fisher" else None

    def _chunks(self, idx: Any, max_rows: int) -> Iterator[Any]:
        size, n = self.size(idx), self.samples.n
        rows = self.library.chunk_rows(size, n, max_rows, self._preferred)
        return self.samples.chunks(idx, rows)

    # The kernels: what is computed on one chunk

    def _value(self, x: Array, chunk: Chunk) -> tuple[Array]:
        return (self.library.partial_sums(chunk.w * self._losses(x, chunk)),)

    def _gradient(self, x: Array, chunk: Chunk) -> tuple[Array, Array]:
        losses, g = self._losses_and_gradient(x, chunk)
        return self.library.partial_sums(chunk.w * losses), g

    def _diagonal(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        losses, g, squares = self.library.per_sample_sums(self._losses, x, chunk)
        return self.library.partial_sums(chunk.w * losses), g, squares

    def _set_up(self, x: Array, chunk: Chunk, generator: RandomGenerator | None) -> Any:
        """What all products on a chunk share."""
        if self._curvature == "hessian":
            return self.library.vjp(lambda x: self._losses_and_gradient(x, chunk)[1], x)[1]
        z, linearized = self.library.linearize(lambda x: self._outputs(x, chunk.inputs), x)
        targets = chunk.targets
        if self._curvature == "gauss-newton":
            return linearized, z, targets, chunk.w
        if self._curvature == "fisher":
            assert self._loss.draw is not None
            assert generator is not None
            targets = self._loss.draw(z, targets, generator)
            # the expectation of r r^T must be the weighted Hessian, so a weight enters only once
            return linearized, z, self._residual(z, targets, self.library.xp.sqrt(chunk.w))
        return linearized, z, self._residual(z, targets, chunk.w)

    def _multiply(self, state: Any, v: Array) -> Array:
        """A product: the Hessian, symmetric, is its own transpose."""
        if self._curvature == "hessian":
            return state(v)
        linearized, z, *rest = state
        jvp, vjp = self.library.jacobian(linearized, z)
        if self._curvature == "gauss-newton":
            return _curvature.gauss_newton(jvp, vjp, self._loss_hessian(z, *rest))(v)
        return _curvature.fisher(jvp, vjp, *rest)(v)

    def _losses_and_gradient(self, x: Array, chunk: Chunk) -> tuple[Array, Array]:
        """The losses, and the gradient of their weighted sum."""
        losses, pullback = self.library.vjp(lambda x: self._losses(x, chunk), x)
        return losses, pullback(chunk.w)

    def _outputs(self, x: Array, inputs: Any) -> Array:
        return self._model(x, inputs)

    def _outputs_of_chunk(self, x: Array, chunk: Chunk) -> Array:
        z, rows = self._outputs(x, chunk.inputs), chunk.w.shape[0]
        if z.shape[:1] != (rows,):
            raise ValueError(
                f"the model returned shape {tuple(z.shape)} for {rows} samples: it must return one "
                "row per sample"
            )
        return z

    def _losses(self, x: Array, chunk: Chunk) -> Array:
        losses = self._loss.losses(self._outputs_of_chunk(x, chunk), chunk.targets)
        check_real(losses, "loss", REAL_LOSS)  # those of complex outputs may be real
        return losses

    def _residual(self, z: Array, targets: Any, w: Array) -> Array:
        """The gradient of each weighted loss in the outputs."""
        return self.library.vjp(lambda z: self._loss.losses(z, targets), z)[1](w)

    def _output_hessian(self, z: Array, targets: Any, w: Array) -> Product:
        """The matrix between J^T and J, for a model that is linear in its parameters."""
        if self._curvature == "empirical-fisher":
            return _curvature.outer_product(self._residual(z, targets, w))
        return self._loss_hessian(z, targets, w)

    def _loss_hessian(self, z: Array, targets: Any, w: Array) -> Product:
        """The Hessian of the losses in the outputs: in closed form, or by autodiff."""
        if self._loss.hessian is not None:
            return self._loss.hessian(z, targets, w)
        return self.library.vjp(lambda z: self._residual(z, targets, w), z)[1]


# A plain function of the parameters


class PlainFunction(Sums):
    """A function with the interface of :class:`SampleSums`: a sum of one term.

    Parameters
    ----------
    function : callable
        ``function(x)``, or where it is `sampled` ``function(x, idx)``, the mean over `idx`.
    sampled : bool
        Whether it takes `idx`.
    """

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
        """The value; with kind "gradient" the gradient too."""
        value, *gradient = self._kernel(kind, idx)(x)
        return float(value), *(self._library.as_given(g, x) for g in gradient)

    def product(
        self, x: Array, idx: Any, precision: Any, on_recompute: Callable[[], None]
    ) -> Product:
        """The product with the Hessian, which always keeps what its calls share."""
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
        if prod(shape) != 1:
            raise ValueError(f"the function must return a scalar, not an array of shape {shape}")
        check_real(value, "the function", REAL_LOSS)
        return (self._library.xp.sum(value),)

    def _gradient(self, idx: Any, x: Array) -> tuple[Array, Array]:
        value, pullback = self._library.vjp(lambda x: self._value(idx, x)[0], x)
        return value, pullback(self._library.xp.ones_like(value))

    def _set_up(self, idx: Any, x: Array) -> Product:
        """The product v -> Hv: the Hessian, symmetric, is its own transpose."""
        return self._library.vjp(lambda x: self._gradient(idx, x)[1], x)[1]
