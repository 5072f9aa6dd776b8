"""Blocks of residuals whose samples are spread over several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.distributed.problem import spread
from ksdmin._adapters.torch.distributed.sums import Shares
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._problem.team import Watch
from ksdmin._problem.values import changed


class DistributedBlocks(BlockProblem):
    """Blocks of residuals, spread over processes; made by :func:`ksdmin.from_torch`.

    Each process adds up its blocks, and one message adds up the processes: it is no longer than
    that of one block, but for the values, of which each block has its own.

    Parameters
    ----------
    terms : sequence of Term
        Of which this process has its share.
    l2, precond
        As in :class:`BlockProblem`.
    link : Link
        To the other processes.
    """

    saved_as = "BlockProblem"  # so that one process can go on with the saved run of several
    _blocks: tuple[TorchProblem, ...]

    def __init__(self, terms: Sequence[Term], l2: Any, precond: Any, link: Link) -> None:
        super().__init__(terms, l2, precond)
        self._link = link
        self.traits = replace(self.traits, gradient_travels=True)

    @property
    def team(self) -> Link:
        """The processes."""
        return self._link

    def in_step_with(self, watch: Watch) -> Self:
        """A copy for a run that ends when all processes know that `watch` wants it to."""
        link = self._link.for_run(watch)
        blocks = (changed(block, _sums=block._sums.linked_by(link)) for block in self._blocks)
        return changed(self, _link=link, _blocks=tuple(blocks))

    def value_and_projected_gradient(
        self, x: Tensor, idx: Any, V: Tensor
    ) -> tuple[float, npt.NDArray[np.float64]]:
        """The value and V^T g, of which each process adds what its samples have."""
        self._counts.add(nfev=1, njev=1)
        terms = [block._evaluate(x, part, False) for block, part in self._parts(idx)]
        values, gradients = zip(*terms, strict=True)
        slopes = (V @ self._sum(gradients)).to(torch.float64)
        numbers = self.team.sum_numbers(torch.cat([torch.stack(values), slopes]), self._counts)
        host = numbers.cpu().numpy()
        self.team.heed(host[-1])
        blocks = len(self._blocks)
        value, slopes = self._sum(host[:blocks].tolist()), host[blocks:-1]
        for penalty, along in zip(self._penalty(x), self._l2_times(x), strict=True):
            more = torch.cat([penalty.reshape(1), V @ along]).to(torch.float64).cpu().numpy()
            value, slopes = value + more[0], slopes + more[1:]
        return float(value), slopes

    def _joint(
        self, values: Sequence[Tensor], vectors: Callable[[Sequence[Tensor]], list[Tensor]]
    ) -> tuple[Sequence[Tensor], list[Tensor]]:
        """The value of each block, and vectors that are made of these, in two messages."""
        numbers = self.team.sum_numbers(torch.stack(list(values)), self._counts)
        values = list(numbers[:-1])
        summed = vectors(values)
        if summed:
            summed = self.team.sum_vectors(summed, self._counts)
        self.team.heed(float(numbers[-1]))
        return values, summed

    def _joint_product(self, product: Tensor) -> Tensor:
        """The product with a vector."""
        return self.team.sum_vector(product, self._counts, self._count_forward_pass)

    def _joint_parts(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """A matrix; or rows, of which each process has zeros for the samples of others."""
        self.team.sum_checked(arrays, self._counts)
        return arrays


def distributed_blocks(
    problem: BlockProblem, link: Link, takes_samples: Sequence[bool]
) -> BlockProblem:
    """The blocks of all processes, from those that each has made of its own samples.

    Residuals that take no samples are those of the first process.
    """
    if link.size == 1:
        return problem
    own = [block for block in problem._blocks if isinstance(block, TorchProblem)]
    shares = [
        spread(block, link, Shares, has=link.is_first or takes)
        for block, takes in zip(own, takes_samples, strict=True)
    ]
    others = zip(shares, problem._weights, problem._elements, strict=True)
    terms = [Term(share, weight, elements) for share, weight, elements in others]
    return DistributedBlocks(terms, problem._l2, link.from_first(problem._precond), link)
