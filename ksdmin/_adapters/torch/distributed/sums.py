"""Sums over the samples of a set in all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.distributed.shards import Part, Shards
from ksdmin._adapters.torch.kernels import Product
from ksdmin._adapters.torch.matrix import MatrixKernel
from ksdmin._adapters.torch.sample_sums import SampleSums
from ksdmin._problem.counting import Counts

VECTORS = {"value": 0, "gradient": 1, "diagonal": 2}  # that a kernel returns beside the total


class ReducedSums:
    """What `SampleSums` is for the samples of one process, for those of all.

    Parameters
    ----------
    local : SampleSums
        Over the samples that are here.
    samples : Shards
        The samples of all processes.
    link : Link
        To the others.
    seed : int
        Of the samples that the diagonal is estimated from.
    """

    def __init__(self, local: SampleSums, samples: Shards, link: Link, seed: int) -> None:
        self.samples, self._local, self._link, self._seed = samples, local, link, seed
        self._counts = Counts()

    def picked(self, part: Part, count: int) -> Part:
        """At most `count` samples of a set, always the same ones."""
        return self.samples.picked(part, count, self._seed)

    def total(self, kind: str, x: Tensor, part: Part, precision: str) -> list[Tensor]:
        """The outputs of a kernel ("value", "gradient", "diagonal"), summed over a set."""
        total, *vectors = self._here(kind, x, part, precision)
        numbers = self._link.sum_numbers(total.reshape(1), self._counts)
        if vectors:
            message = self._link.sum(torch.cat(vectors), self._counts)
            vectors = list(message.reshape(len(vectors), -1))
        self._link.heed(float(numbers[-1]))
        return [numbers[0], *vectors]

    def squares(self, x: Tensor, part: Part, precision: str) -> Tensor:
        """The squared gradients alone, summed over a set."""
        squares = self._here("diagonal", x, part, precision)[2]
        return self._at_once(squares)

    def projected(
        self,
        x: Tensor,
        part: Part,
        precision: str,
        slopes: Callable[[Tensor, bool], Tensor],
        finish: Callable[[Tensor], Tensor],
    ) -> Any:
        """A value, and some slopes of the mean, as float64 numbers on the host.

        `slopes` makes them of the sum of the gradients here (True: in the first process, where what
        belongs to no sample is added), `finish` makes the value of the sum of all losses.
        """
        total, g = self._here("gradient", x, part, precision)
        mine = slopes(g, self._link.is_first).to(torch.float64)
        numbers = self._link.sum_numbers(torch.cat([total.reshape(1), mine]), self._counts)
        numbers[0] = finish(numbers[0])
        host = numbers.cpu().numpy()
        self._link.heed(host[-1])
        return host[:-1]

    def matrix(self, kernel: MatrixKernel, x: Tensor, part: Part, precision: str) -> Tensor:
        """The sum of the curvature matrices over a set."""
        n = x.numel()

        def nothing() -> Tensor:
            return x.new_zeros((n, n))

        def here() -> Tensor:
            return self._local.matrix(kernel, x, part.here, precision)

        H = nothing() if part.here is None else self._link.attempt(here, nothing)
        return self._at_once(H.reshape(-1)).reshape(n, n)

    def product(
        self, x: Tensor, part: Part, precision: str, on_recompute: Callable[[], None]
    ) -> Product:
        """The sum of the products over a set.

        `on_recompute` is called where any process had to compute again what its products share.
        """
        link, counts, local = self._link, self._counts, None

        def prepared() -> Product:
            return self._local.product(x, part.here, precision, link.note_forward_pass)

        if part.here is not None:
            local = link.attempt(prepared, lambda: torch.zeros_like)

        def multiply(v: Tensor) -> Tensor:
            here = torch.zeros_like(v)
            if local is not None:
                here = link.attempt(lambda: local(v), lambda: torch.zeros_like(v))
            return link.sum_vector(here, counts, on_recompute)

        return multiply

    def _here(self, kind: str, x: Tensor, part: Part, precision: str) -> list[Tensor]:
        """The outputs of a kernel over the samples that are here; zeros where none are."""

        def nothing() -> list[Tensor]:
            vectors = [torch.zeros_like(x) for _ in range(VECTORS[kind])]
            return [x.new_zeros((), dtype=torch.float64), *vectors]

        if part.here is None:
            return nothing()
        return self._link.attempt(lambda: self._local.total(kind, x, part.here, precision), nothing)

    def _at_once(self, vector: Tensor) -> Tensor:
        """The sum of a vector, once it is known that no process has failed."""
        numbers = self._link.sum_numbers(vector.new_zeros(0, dtype=torch.float64), self._counts)
        total = self._link.sum(vector.clone(), self._counts)
        self._link.heed(float(numbers[-1]))
        return total
