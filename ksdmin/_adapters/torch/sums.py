"""Runs the kernels over the chunks of a set, through CUDA graphs if that works."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES
from ksdmin._adapters.model_problem import SumsOverSamples
from ksdmin._adapters.torch.cuda_graphs import GraphExecutor
from ksdmin._adapters.torch.data.arrays import cast
from ksdmin._adapters.torch.data.samples import EpochSamples, Samples
from ksdmin._adapters.torch.kernels import Chunk, Kernel, Kernels, Product
from ksdmin._adapters.torch.matrices import JacobianRows, MatrixKernel
from ksdmin._adapters.torch.model_calls import seeded_generators, taking_statistics, tracking
from ksdmin._adapters.trees import tree_map

log = logging.getLogger("ksdmin")

P = ParamSpec("P")
T = TypeVar("T")

SMALLER_BATCHES = (
    "BatchNorm in train mode takes its statistics from batches of {} samples at most, which do not "
    "fit into memory: give from_torch a smaller chunk_size="
)


def fitting(
    method: Callable[Concatenate[SampleSums, P], T],
) -> Callable[Concatenate[SampleSums, P], T]:
    """A method that is tried again after an error: with smaller chunks, or without graphs."""

    @wraps(method)
    def fitted(sums: SampleSums, /, *args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return method(sums, *args, **kwargs)
            except RuntimeError as error:
                mend = sums._way_out(error)
                if mend is None:
                    raise
            mend()  # outside `except`, because the traceback keeps references to what was computed

    return fitted


class SampleSums(SumsOverSamples):
    """Sums over the samples of a set, chunk by chunk."""

    samples: Samples | EpochSamples

    def __init__(
        self,
        kernels: Kernels,
        samples: Samples | EpochSamples,
        # How many samples one chunk has at most; and a batch of BatchNorm in train mode.
        max_rows: int,
        # How many samples a set may have for its products to keep what they share; with more it is
        # computed again for every product.
        max_kept_samples: int,
        graphs: bool,  # whether to try CUDA graphs
        # Of what the model draws itself (dropout), of the labels of "fisher", of the samples that
        # the diagonal is estimated from, and of the batches of a set.
        seed: int,
    ) -> None:
        self.samples, self.seed = samples, seed
        self._kernels, self._max_rows, self._max_kept_samples = kernels, max_rows, max_kept_samples
        tried = graphs and not kernels.model.is_random
        self._graphs = GraphExecutor(kernels) if tried else None  # None: kernels run eagerly
        self._norms = kernels.model.batch_norms
        self._halved = False  # whether the chunks had to be
        self._buffer_owner: object = None  # the product that the graphs' buffers belong to

    @property
    def diagonal(self) -> Any:
        """The kernel of the preconditioner's diagonal, if there is one."""
        return self._kernels.diagonal

    @property
    def has_squares(self) -> bool:  # type: ignore[override]
        """Whether there is a kernel of the diagonal."""
        return self.diagonal is not None

    @property
    def max_diagonal_samples(self) -> int:  # type: ignore[override]
        """How many samples it is estimated from: few, if it needs the gradient of each."""
        few = self.diagonal is not None and self.diagonal.max_samples is not None
        return DIAGONAL_SAMPLES if few else sys.maxsize

    @fitting
    def total(self, kind: str, x: Tensor, idx: Any, precision: str) -> list[Tensor]:
        """The outputs of a kernel ("value", "gradient", "diagonal"), summed over a set.

        The next call may overwrite them.
        """
        size = self.samples.size(idx)
        rows = self._rows(kind, size)
        total, kernel = Total(single=size <= rows), self._kernel(kind, rows, precision)
        with self._setting(idx, precision):
            for chunk in self._chunks(idx, rows):
                total.add(kernel(x, chunk))
        return total.tensors

    def _kernel(self, kind: str, rows: int, precision: str) -> Kernel:
        """A kernel for chunks of so many rows; its outputs may be overwritten by the next ones."""
        if self._graphs is not None:
            return partial(self._graphs.run, kind, rows, precision)
        kernel: Kernel = getattr(self._kernels, kind)
        return kernel

    @fitting
    def factors(self, x: Tensor, idx: Any, precision: str, entries: int) -> Tensor:
        """The sum of the Kronecker factors over a set, which have so many entries."""
        size = self.samples.size(idx)
        # no padding, which would count as samples (a padded batch has at most a few more)
        rows = self._rows("factors", size) if self._norms else min(size, self._max_rows)
        total = Total(single=size <= rows)
        with self._setting(idx, precision):
            for chunk in self._drawn(x, idx, rows, precision):
                total.add(self._kernel("factors", len(chunk[2]), precision)(x, chunk))
        return total.tensors[0]

    @fitting
    def matrix(self, kernel: MatrixKernel, x: Tensor, idx: Any, precision: str) -> Tensor:
        """The sum of the curvature matrices over a set."""
        rows, total = min(self.samples.size(idx), self._max_rows), Total(single=True)
        with self._kernels.model.arithmetic(precision):
            for chunk in self.samples.chunks(idx, rows):
                total.add((kernel(x, chunk),))
        return total.tensors[0]

    def jacobian(
        self, kernel: JacobianRows, x: Tensor, idx: Any, precision: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of the samples of a set, slopes and roots: see :class:`JacobianRows`.

        Raises if not all rows fit into memory, since smaller chunks would not help. Chunks that do
        not fit besides them are halved; those of other kernels stay.
        """
        size, k = self.samples.size(idx), kernel.elements
        R, slopes, root = (x.new_empty(size, k, *more) for more in ((x.numel(),), (), ()))
        most = asked = min(size, kernel.max_rows, self._max_rows)
        while True:
            try:
                self._gather("rows", x, idx, precision, most, (R, slopes, root))
                break
            except RuntimeError as error:
                full = isinstance(error, torch.cuda.OutOfMemoryError)
                mend = self._free_memory if full else self._way_out(error)
                if mend is None or (full and most <= 1):
                    raise
            mend()  # see `fitting`
            most = most // 2 if full else most
        if most < asked:
            kernel.max_rows = most
            log.info("out of memory: from here on at most %d samples' rows at once", most)
        return R.reshape(size * k, -1), slopes.reshape(-1), root.reshape(-1)

    @fitting
    def slopes(
        self, kernel: JacobianRows, x: Tensor, idx: Any, precision: str
    ) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and their slopes in the outputs, all in one vector."""
        whole = x.new_empty(self.samples.size(idx), kernel.elements)
        totals = self._gather("slopes", x, idx, precision, self._max_rows, (whole,))
        return torch.stack(totals).sum(), whole.reshape(-1)

    def _gather(
        self,
        kind: str,
        x: Tensor,
        idx: Any,
        precision: str,
        max_rows: int,
        wholes: tuple[Tensor, ...],
    ) -> list[Tensor]:
        """Write a kernel's outputs for every sample, the last ones, into `wholes`.

        Returns the other outputs of all chunks.
        """
        rows, at, others = self._chunk_rows(kind, self.samples.size(idx), max_rows), 0, []
        kernel = self._kernel(kind, rows, precision)
        with self._setting(idx, precision):
            for chunk in self.samples.chunks(idx, rows):
                found, end = kernel(x, chunk), at + len(chunk[2])
                own = len(found) - len(wholes)
                for whole, part in zip(wholes, found[own:], strict=True):
                    whole[at:end] = part[: end - at]
                at = end
                others += [other.clone() for other in found[:own]]
        return others

    def product(
        self, x: Tensor, idx: Any, precision: str, on_recompute: Callable[[], None]
    ) -> Product:
        """The sum of the products over a set; the next product may overwrite its result.

        `on_recompute` is called if a product has to repeat what all of them share, because it does
        not fit into memory, or because another product has overwritten the buffers.
        """
        x = x.clone()  # the caller may write into it
        made_again = partial(self._product, x, idx, precision, on_recompute)
        product = made_again()

        def multiply(v: Tensor) -> Tensor:
            nonlocal product
            while True:
                try:
                    return product(v)
                except torch.cuda.OutOfMemoryError as error:
                    mend = self._way_out(error)
                    if mend is None:
                        raise
                mend()
                product = made_again()

        return multiply

    @fitting
    def _product(
        self, x: Tensor, idx: Any, precision: str, on_recompute: Callable[[], None]
    ) -> Product:
        graphs, owner, size = self._graphs, object(), self.samples.size(idx)
        rows = self._rows("product", size)
        fits = size <= self._max_kept_samples

        def each() -> Iterator[Product]:
            self._buffer_owner = owner
            chunks = self._chunks(idx, rows)
            if self._kernels.curvature == "fisher":
                chunks = self._drawn(x, idx, rows, precision)
            for i, chunk in enumerate(chunks):
                if graphs is None:
                    yield self._kernels.product(x, chunk)
                else:
                    yield graphs.product(i if fits else 0, rows, x, chunk, precision)

        with self._setting(idx, precision):
            kept = list(each()) if fits else []

        def multiply(v: Tensor) -> Tensor:
            nonlocal kept
            overwritten = fits and graphs is not None and self._buffer_owner is not owner
            if overwritten or not fits:
                on_recompute()
            total = Total(single=size <= rows)
            with self._setting(idx, precision):
                if overwritten:
                    kept = list(each())
                for product in kept if fits else each():
                    total.add((product(v),))
            return total.tensors[0]

        return multiply

    def _drawn(self, x: Tensor, idx: Any, rows: int, precision: str) -> Iterator[Chunk]:
        """The chunks of a set with labels drawn from the model, if the loss defines them."""
        generator = torch.Generator(x.device).manual_seed(self.samples.seed(self.seed, idx))
        for chunk in self._chunks(idx, rows):
            drawn = self._kernels.loss.draw is not None
            yield self._kernels.draw(x, chunk, generator, precision) if drawn else chunk

    def _rows(self, kind: str, size: int) -> int:
        """How many rows the chunks of a set have; for batches, that does not depend on graphs."""
        if not self._norms:
            return self._chunk_rows(kind, size, self._max_rows)
        batches = -(-size // self._max_rows)
        return -(-size // batches)

    def _chunk_rows(self, kind: str, size: int, max_rows: int) -> int:
        graphs = self._graphs
        return min(size, max_rows) if graphs is None else graphs.chunk_rows(kind, size, max_rows)

    def _chunks(self, idx: Any, rows: int) -> Iterator[Chunk]:
        """The chunks of a set; batches, if samples share statistics."""
        if self._norms:
            return self.samples.batches(idx, rows, self.seed)
        return self.samples.chunks(idx, rows)

    def take_statistics(self, idx: Any, precision: str) -> None:
        """Set the running statistics of BatchNorm to those of a set, at the module's parameters.

        (The module's dtype and device may have changed.)
        """
        model, norms = self._kernels.model, tracking(self._norms)
        parameters = list(model.variables().values())
        here = parameters[0]

        def brought(leaf: Tensor) -> Tensor:
            return cast(leaf.to(here.device), here.dtype)

        rows, arithmetic = self._rows("value", self.samples.size(idx)), model.arithmetic(precision)
        setting = self._setting(idx, precision)
        with arithmetic, setting, taking_statistics(norms), torch.no_grad():
            for inputs, _, _ in self._chunks(idx, rows) if norms else ():
                model(parameters, tree_map(brought, inputs), raw=True)

    @contextmanager
    def _setting(self, idx: Any, precision: str) -> Iterator[None]:
        """The arithmetic of a precision; torch's generators seeded for a set if the model draws."""
        with ExitStack() as stack:
            if self._graphs is None:  # a graph has the arithmetic of its capture
                stack.enter_context(self._kernels.model.arithmetic(precision))
            if self._kernels.model.is_random:
                seed = self.samples.seed(self.seed, idx)
                stack.enter_context(seeded_generators(seed, self._kernels.model.device))
            yield

    @contextmanager
    def without_graphs(self) -> Iterator[None]:
        """Within it, evaluations are eager, because graphs would keep the present modes."""
        graphs, self._graphs = self._graphs, None
        try:
            yield
        finally:
            self._graphs = graphs

    def _way_out(self, error: RuntimeError) -> Callable[[], None] | None:
        """A remedy for an error, as a function to call; None: there is none."""
        if isinstance(error, torch.cuda.OutOfMemoryError):
            if self._norms:  # smaller batches would have other statistics
                error.add_note(SMALLER_BATCHES.format(self._max_rows))
            return None if self._max_rows <= 1 or self._norms else self._halve
        if self._graphs is None:
            return None
        log.warning("ksdmin: no CUDA graphs for this model, it runs eagerly: %s", error)
        return partial(setattr, self, "_graphs", None)

    def _halve(self) -> None:
        self._max_rows = max(1, min(self._max_rows, self.samples.n) // 2)
        self._max_kept_samples = min(self._max_kept_samples, self._max_rows)
        self._free_memory()
        said = log.info if self._halved else log.warning
        said("out of memory: from here on at most %d samples at once", self._max_rows)
        self._halved = True

    def _free_memory(self) -> None:
        if self._graphs is not None:  # without the memory of these
            self._graphs = GraphExecutor(self._kernels)
        torch.cuda.empty_cache()  # without a device it does nothing


class Total:
    """The sums of tensors that are overwritten as soon as the next ones are computed."""

    def __init__(self, *, single: bool) -> None:
        self.tensors: list[Tensor] = []
        self._single = single  # whether there are no more than the first, which are not copied

    def add(self, tensors: tuple[Tensor, ...]) -> None:
        """Add the tensors of a chunk."""
        if not self.tensors:
            self.tensors = [u if self._single else torch.clone(u) for u in tensors]
            return
        for total, tensor in zip(self.tensors, tensors, strict=True):
            total += tensor
