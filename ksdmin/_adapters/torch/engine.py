"""Runs the kernels over the chunks of a set, through CUDA graphs where that works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.flat import seed_of
from ksdmin._adapters.torch.data import Samples
from ksdmin._adapters.torch.graphs import GraphExecutor
from ksdmin._adapters.torch.kernels import Chunk, Kernels, Product
from ksdmin._adapters.torch.random import frozen_randomness

log = logging.getLogger("ksdmin")


class EagerExecutor:
    """Runs kernels as they are."""

    reuses_memory = False

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def rows(self, kind: str, size: int, most: int) -> int:
        """How long to make the chunks of a set."""
        return min(size, most)

    def run(
        self, kind: str, rows: int, x: Tensor, chunk: Chunk, precision: str
    ) -> tuple[Tensor, ...]:
        """The outputs of a kernel, in the arithmetic that has been set."""
        return self._kernels.by_name(kind)(x, chunk)

    def product(self, slot: int, rows: int, x: Tensor, chunk: Chunk, precision: str) -> Product:
        """The curvature of a chunk, likewise."""
        return self._kernels.product(x, chunk)


class Engine:
    """Sums over the samples of a set, chunk by chunk.

    Parameters
    ----------
    kernels : Kernels
        What is computed on a chunk.
    samples : Samples
        The data.
    chunk : int
        The most samples of one chunk.
    resident : int
        How many samples may keep what their products share; beyond that it is computed again for
        every product.
    graphs : bool
        Whether to try CUDA graphs.
    seed : int
        Of what the model draws itself (dropout), and of the labels of "fisher".
    """

    def __init__(
        self,
        kernels: Kernels,
        samples: Samples,
        chunk: int,
        resident: int,
        graphs: bool,
        seed: int,
    ) -> None:
        self.samples = samples
        self._seed = seed
        self._kernels, self._chunk, self._resident = kernels, chunk, resident
        self._executor: EagerExecutor | GraphExecutor = EagerExecutor(kernels)
        if graphs and not kernels.model.random:
            self._executor = GraphExecutor(kernels)
        self._tenant: object = None  # whose curvature the executor's memory holds

    def total(self, kind: str, x: Tensor, idx: Any, precision: str) -> list[Tensor]:
        """The outputs of a kernel ("value", "gradient", "diagonal"), summed over a set.

        The next call may overwrite them.
        """
        sums: list[Tensor] = self._or_eagerly(self._total, kind, x, idx, precision)
        return sums

    def _total(self, kind: str, x: Tensor, idx: Any, precision: str) -> list[Tensor]:
        size = self.samples.size(idx)
        rows = self._executor.rows(kind, size, self._chunk)
        with self._setting(idx, precision):
            chunks = self.samples.chunks(idx, rows)
            outputs = (self._executor.run(kind, rows, x, chunk, precision) for chunk in chunks)
            return add(outputs, alone=size <= rows)

    def product(self, x: Tensor, idx: Any, precision: str, again: Callable[[], None]) -> Product:
        """The sum of the products over a set, which the next one may overwrite.

        `again` is called where one has to compute anew what they share: for want of memory, or
        because another curvature has moved in since.
        """
        product: Product = self._or_eagerly(self._sum_of_products, x, idx, precision, again)
        return product

    def _sum_of_products(
        self, x: Tensor, idx: Any, precision: str, again: Callable[[], None]
    ) -> Product:
        executor, tenant, size = self._executor, object(), self.samples.size(idx)
        rows = executor.rows("product", size, self._chunk)
        keeps = size <= self._resident

        def each() -> Iterator[Product]:
            self._tenant = tenant
            for i, chunk in enumerate(self._labelled(x, idx, rows, precision)):
                yield executor.product(i if keeps else 0, rows, x, chunk, precision)

        def computed() -> list[Product]:
            with self._setting(idx, precision):
                return list(each())

        kept = computed() if keeps else []

        def times(v: Tensor) -> Tensor:
            nonlocal kept
            evicted = keeps and executor.reuses_memory and self._tenant is not tenant
            if evicted or not keeps:
                again()
            if evicted:
                kept = computed()
            with self._setting(idx, precision):
                outputs = ((product(v),) for product in (kept if keeps else each()))
                return add(outputs, alone=size <= rows)[0]

        return times

    def _labelled(self, x: Tensor, idx: Any, rows: int, precision: str) -> Iterator[Chunk]:
        """The chunks of a set; for "fisher" with labels drawn from the model."""
        chunks = self.samples.chunks(idx, rows)
        if self._kernels.curvature != "fisher":
            yield from chunks
            return
        generator = torch.Generator(x.device).manual_seed(seed_of(self._seed, idx))
        for chunk in chunks:
            yield self._kernels.draw(x, chunk, generator, precision)

    @contextmanager
    def _setting(self, idx: Any, precision: str) -> Iterator[None]:
        """The arithmetic of a precision, and the model's own randomness frozen for a set."""
        with ExitStack() as stack:
            if not self._executor.reuses_memory:  # a graph has its arithmetic from its capture
                stack.enter_context(self._kernels.model.arithmetic(precision))
            if self._kernels.model.random:
                seed = seed_of(self._seed, idx)
                stack.enter_context(frozen_randomness(seed, self._kernels.model.device))
            yield

    def _or_eagerly(self, run: Callable[..., Any], *args: Any) -> Any:
        """Run; where a graph cannot be made, say so once and go on without graphs."""
        if isinstance(self._executor, EagerExecutor):
            return run(*args)
        try:
            return run(*args)
        except RuntimeError as error:
            log.warning("ksdmin: no CUDA graphs for this model, it runs eagerly: %s", error)
            self._executor = EagerExecutor(self._kernels)
            return run(*args)


def add(outputs: Iterable[tuple[Tensor, ...]], *, alone: bool) -> list[Tensor]:
    """The sums of tensors that are overwritten as soon as the next ones are asked for.

    One that is `alone` is handed on as it is.
    """
    sums: list[Tensor] = []
    for tensors in outputs:
        if not sums:
            sums = [tensor if alone else torch.clone(tensor) for tensor in tensors]
        else:
            for total, tensor in zip(sums, tensors, strict=True):
                total += tensor
    return sums
