"""A model, a loss and samples: what is computed at (x, idx), summed over samples.

All derivatives come from one verb of a library, ``vjp(f, x) -> (f(x), u -> J^T u)``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat import ENOUGH, SampleLoss, bends, seed_of
from ksdmin._adapters.functional.data import Chunk, Samples
from ksdmin._adapters.functional.library import Kernel, Library
from ksdmin._adapters.functional.losses import Draws
from ksdmin._problem.arrays import Array

COPIES = 4  # of what a forward pass keeps: a product works in about as much again
PROBE = 8  # samples that tell how much memory one takes


class SampleSums:
    """Sums over the samples of a set, chunk by chunk.

    Parameters
    ----------
    library : Library
        What differentiates, and compiles.
    model : callable
        (x, inputs) -> outputs, one row a sample.
    loss : SampleLoss
        (outputs, targets) -> one loss a sample.
    samples : Samples
        The data.
    curvature : str
        A provider's name.
    seed : int
        Of the labels that "fisher" draws.
    """

    def __init__(
        self,
        library: Library,
        model: Callable[[Array, Any], Array],
        loss: SampleLoss,
        samples: Samples,
        curvature: str,
        seed: int,
    ) -> None:
        self._library, self._model, self._loss = library, model, loss
        self._samples, self._curvature, self._seed = samples, curvature, seed
        self._kernels = self._compiled(library)
        self._fast_set_up = library.compile(self._set_up)
        self._fast_times = library.compile(self._times)
        self._most = self._most_per_sample = self._resident = self._enough = samples.n
        self.size = samples.size

    def _compiled(self, library: Library) -> dict[str, Kernel]:
        kernels = {"value": self._value, "gradient": self._gradient, "diagonal": self._diagonal}
        return {name: library.compile(kernel) for name, kernel in kernels.items()}

    def sharpened(self, library: Library) -> SampleSums:
        """The same with values and gradients as another library computes them."""
        twin = copy.copy(self)
        twin._kernels = self._compiled(library)
        return twin

    def fit(self, x: Array, chunk_size: int | None, budget: float) -> None:
        """Choose how many samples are computed at once, so that they take `budget` bytes."""
        n, library = self._samples.n, self._library
        many, few = min(PROBE, n), max(1, min(PROBE, n) // 2)
        chunks = {rows: next(self._samples.chunks(slice(rows), rows)) for rows in (many, few)}
        kept = {
            rows: library.bytes_kept(self._fast_set_up, x, chunk, self._draws(0))
            for rows, chunk in chunks.items()
        }
        each = max(1, (kept[many] - kept[few]) // max(1, many - few))
        self._resident = max(1, int(budget // (COPIES * each)))
        self._most = int(chunk_size or min(self._resident, n))
        entries, at_once = library.prepare(self._losses, x, chunks[many])
        gradients = max(1, int(budget // (COPIES * max(1, entries) * x.dtype.itemsize)))
        self._most_per_sample = min(self._most, gradients)
        self._enough = n if at_once else ENOUGH

    def telling(self, idx: Any) -> Any:
        """The samples of a set that tell the diagonal."""
        return self._samples.spread(idx, self._enough)

    def nonlinear(self, x: Array) -> bool:
        """Whether the model is anything but linear in its parameters."""
        few = min(PROBE, self._samples.n)
        inputs = next(self._samples.chunks(slice(few), few)).inputs
        return bends(lambda x: self._outputs(x, inputs), x)

    def total(self, kind: str, x: Array, idx: Any) -> tuple[Any, ...]:
        """The outputs of a kernel ("value", "gradient", "diagonal"), summed over a set."""
        most = self._most_per_sample if kind == "diagonal" else self._most
        total, tall = 0.0, None
        for chunk in self._chunks(idx, most):
            losses, *more = self._kernels[kind](x, chunk)
            total += float(np.sum(np.asarray(losses), dtype=np.float64))
            tall = more if tall is None else [a + b for a, b in zip(tall, more, strict=True)]
        return total, *(tall or ())

    def product(self, x: Array, idx: Any, again: Callable[[], None]) -> Product:
        """The sum of the products over a set.

        `again` is called where one has to compute anew what they share, for want of memory.
        """
        keeps = self.size(idx) <= self._resident
        seed = seed_of(self._seed, idx)

        def states() -> Iterator[Any]:
            for i, chunk in enumerate(self._chunks(idx, self._most)):
                yield self._fast_set_up(x, chunk, self._draws(seed + i))

        kept = list(states()) if keeps else None

        def times(v: Array) -> Array:
            if not keeps:
                again()
            products = (self._fast_times(state, v) for state in kept or states())
            total = next(products)
            for product in products:
                total = total + product
            return total

        return times

    def _draws(self, seed: int) -> Draws | None:
        return self._library.draws(seed) if self._curvature == "fisher" else None

    def _chunks(self, idx: Any, most: int) -> Iterator[Chunk]:
        size, n = self.size(idx), self._samples.n
        whole = size == n <= most  # in one piece, as it is
        return self._samples.chunks(idx, n if whole else min(n, self._library.rows(size, most)))

    # The kernels: what is computed on one chunk

    def _value(self, x: Array, chunk: Chunk) -> tuple[Array]:
        return (self._library.partial_sums(chunk.w * self._losses(x, chunk)),)

    def _gradient(self, x: Array, chunk: Chunk) -> tuple[Array, Array]:
        losses, g = self._slope(x, chunk)
        return self._library.partial_sums(chunk.w * losses), g

    def _diagonal(self, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        losses, g, squares = self._library.per_sample(self._losses, x, chunk)
        return self._library.partial_sums(chunk.w * losses), g, squares

    def _set_up(self, x: Array, chunk: Chunk, draws: Draws | None) -> Any:
        """What all products on a chunk share."""
        if self._curvature == "hessian":
            return self._library.vjp(lambda x: self._slope(x, chunk)[1], x)[1]
        z, kept = self._library.linearize(lambda x: self._outputs(x, chunk.inputs), x)
        targets = chunk.targets
        if self._curvature == "gauss-newton":
            return kept, z, targets, chunk.w
        if self._curvature == "fisher":
            assert self._loss.draw is not None
            assert draws is not None
            targets = self._loss.draw(z, targets, draws)
        return kept, z, self._residual(z, targets, chunk.w)

    def _times(self, state: Any, v: Array) -> Array:
        """A product: the Hessian, symmetric, is its own transpose."""
        if self._curvature == "hessian":
            return state(v)
        kept, z, *at = state
        jvp, vjp = self._library.jacobian(kept, z)
        if self._curvature == "gauss-newton":
            return _curvature.gauss_newton(jvp, vjp, self._loss_hessian(z, *at))(v)
        return _curvature.fisher(jvp, vjp, *at)(v)

    def _slope(self, x: Array, chunk: Chunk) -> tuple[Array, Array]:
        """The losses, and the gradient of their weighted sum."""
        losses, pull = self._library.vjp(lambda x: self._losses(x, chunk), x)
        return losses, pull(chunk.w)

    def _outputs(self, x: Array, inputs: Any) -> Array:
        return self._model(x, inputs)

    def _losses(self, x: Array, chunk: Chunk) -> Array:
        z, rows = self._outputs(x, chunk.inputs), chunk.w.shape[0]
        if z.shape[:1] != (rows,):
            raise ValueError(
                f"the model returned shape {tuple(z.shape)} for {rows} samples: it must return one "
                "row a sample"
            )
        return self._loss.losses(z, chunk.targets)

    def _residual(self, z: Array, targets: Any, w: Array) -> Array:
        """The gradient of each weighted loss in the outputs."""
        return self._library.vjp(lambda z: self._loss.losses(z, targets), z)[1](w)

    def _loss_hessian(self, z: Array, targets: Any, w: Array) -> Product:
        """The Hessian of the losses in the outputs: in closed form, or by autodiff."""
        if self._loss.hessian is not None:
            return self._loss.hessian(z, targets, w)
        return self._library.vjp(lambda z: self._residual(z, targets, w), z)[1]
