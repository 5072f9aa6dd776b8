"""A problem whose samples are spread over several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.distributed.shards import Shards
from ksdmin._adapters.torch.distributed.sums import ReducedSums
from ksdmin._adapters.torch.flat_model import LOCK
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._problem.counting import Counts
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.team import Watch
from ksdmin._problem.values import changed, made


class DistributedProblem(TorchProblem):
    """A torch model whose samples are spread over processes; made by :func:`ksdmin.from_torch`.

    Every verb is a sum over all processes, and returns the same bits in each: all of them have to
    call it, with the same arguments.

    Attributes
    ----------
    x0 : Tensor
        As in :class:`TorchProblem`; at first, that of the first process in all of them.
    subsets : Subsets
        Of the samples of all processes, which follow each other in the order of the ranks.
    """

    saved_as = "TorchProblem"  # so that one process can go on with the saved run of several
    team: Link
    _sums: ReducedSums  # type: ignore[assignment]

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`: for a run, or for the next step of one."""
        return changed(super().counting(counts), _sums=changed(self._sums, _counts=counts))

    def in_step_with(self, watch: Watch) -> Self:
        """A copy for a run that ends when all processes know that `watch` wants it to."""
        link = self.team.for_run(watch)
        return changed(self, team=link, _sums=changed(self._sums, _link=link))

    def value_and_projected_gradient(
        self, x: Tensor, idx: Any, V: Tensor
    ) -> tuple[float, npt.NDArray[np.float64]]:
        """The value and V^T g, of which each process adds what its samples have."""
        with LOCK:
            x, part = self._checked(x, idx)
            self._counts.add(nfev=1, njev=1)

            def slopes(g: Tensor, with_penalty: bool) -> Tensor:
                g = g / part.size
                return V @ (torch.addcmul(g, self._l2, x) if with_penalty else g)

            both = self._sums.projected(
                x, part, self._precision[0], slopes, lambda total: self._mean(total, x, part)
            )
        return float(both[0]), both[1:]

    def _estimated_diagonal(self, x: Tensor, chosen: Any) -> Tensor:
        """The diagonal, estimated from some of the samples: no gradient has to be sent."""
        self._count_diagonal_samples()
        squares: Tensor = self._sums.squares(x, chosen, self._precision[0]) / chosen.size
        return squares + self._l2


@dataclass(frozen=True)
class Facts:
    """What a process has found out about the model with its own samples.

    Attributes
    ----------
    samples : int
        How many it has.
    mean_weight : float
        Of its samples.
    nonlinear, has_diagonal : bool
        As in the traits.
    matrix_products : int or None
        What a curvature matrix counts as; None where there is none.
    matrix_cost : float
        As in the traits, 0 where there is none.
    max_diagonal_samples : int
        How many the diagonal is estimated from.
    """

    samples: int
    mean_weight: float
    nonlinear: bool
    has_diagonal: bool
    matrix_products: int | None
    matrix_cost: float
    max_diagonal_samples: int


def facts_of(problem: TorchProblem, samples: Samples) -> Facts:
    """Those of the problem that this process has made."""
    traits, matrix = problem.traits, problem._matrix
    return Facts(
        samples.n,
        samples.mean_weight,
        traits.nonlinear,
        traits.has_diagonal,
        None if matrix is None else matrix.products,
        traits.matrix_cost or 0.0,
        problem._max_diagonal_samples,
    )


def distributed(problem: TorchProblem, link: Link) -> TorchProblem:
    """The problem of all processes, from the problem that each has made of its own samples.

    One process alone has the sums already: its problem is the one that it would have without a
    group, with the same kernels and graphs, and no message is sent.
    """
    sums, samples = problem._sums, problem._sums.samples
    assert isinstance(samples, Samples)
    if link.size == 1:
        samples.check_weights()
        return problem
    facts = link.gathered(facts_of(problem, samples))
    sizes = [fact.samples for fact in facts]
    n = sum(sizes)
    samples.set_mean_weight(sum(fact.mean_weight * (fact.samples / n) for fact in facts))
    samples.check_weights()
    traits = joint_traits(problem.traits, facts)
    precond, seed = link.from_first(problem._precond), link.from_first(sums.seed)
    sums.seed = seed + link.rank  # dropout masks and drawn labels differ between processes
    return made(
        DistributedProblem,
        **{
            **vars(problem),
            "team": link,
            "x0": link.from_first(problem.x0),
            "subsets": Subsets(n),
            "traits": traits,
            "_precond": precond if traits.has_diagonal else None,
            "_matrix": problem._matrix if traits.has_matrix else None,
            "_max_diagonal_samples": min(fact.max_diagonal_samples for fact in facts),
            "_sums": ReducedSums(sums, Shards(samples, sizes, link.rank), link, seed),
        },
    )


def joint_traits(traits: Traits, facts: Sequence[Facts]) -> Traits:
    """What holds in all processes: their samples may have shown different things."""
    matrices = {fact.matrix_products for fact in facts}
    has_matrix = len(matrices) == 1 and None not in matrices
    return replace(
        traits,
        nonlinear=any(fact.nonlinear for fact in facts),
        has_diagonal=all(fact.has_diagonal for fact in facts),
        gradient_travels=True,
        has_matrix=has_matrix,
        matrix_cost=max(fact.matrix_cost for fact in facts) if has_matrix else None,
    )
