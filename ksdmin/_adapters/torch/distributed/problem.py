"""A problem whose samples are spread over several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.distributed.shards import Shards
from ksdmin._adapters.torch.distributed.sums import ReducedSums, Shares
from ksdmin._adapters.torch.flat_model import LOCK
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._problem.counting import Counts
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.team import Watch
from ksdmin._problem.values import changed, made

P = TypeVar("P", bound=TorchProblem)


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
    _sums: ReducedSums

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
            means = self._means

            def slopes(g: Tensor, with_penalty: bool) -> Tensor:
                along: Tensor = means.gradient(g, part.size, x) if with_penalty else g / part.size
                return V @ along

            both = self._sums.projected(
                x, part, self._precision[0], slopes, lambda total: means.value(total, part.size, x)
            )
        return float(both[0]), both[1:]

    def _estimated_diagonal(self, x: Tensor, chosen: Any) -> Tensor:
        """The diagonal, estimated from some of the samples: no gradient has to be sent."""
        self._count_diagonal_samples()
        squares = self._sums.squares(x, chosen, self._precision[0])
        found: Tensor = self._means.squares(squares, chosen.size, x)
        return found


class Share(TorchProblem):
    """What this process adds to the means of a problem whose samples are spread; without penalty.

    The sum over all processes is a block of :class:`DistributedBlocks`.
    """

    _sums: Shares

    def linked_by(self, link: Link) -> Self:
        """A copy whose failures are told by another link."""
        return changed(self, _sums=changed(self._sums, _link=link))


@dataclass(frozen=True)
class Facts:
    """What a process has found out about the model with its own samples.

    Attributes
    ----------
    samples : int
        How many it has.
    mean_weight : float
        Of its samples.
    traits : Traits
        Of the problem that it has made of them.
    kernel : tuple or None
        The kind of its kernel for a curvature matrix or a Jacobian, and what that counts as.
    max_diagonal_samples : int
        How many the diagonal is estimated from.
    """

    samples: int
    mean_weight: float
    traits: Traits
    kernel: tuple[str, int] | None
    max_diagonal_samples: int


def facts_of(problem: TorchProblem, samples: Samples, count: int) -> Facts:
    """Those of the problem that this process has made, of whose samples so many count."""
    found = problem._matrix or problem._rows
    kernel = None if found is None else (type(found).__name__, found.products)
    most = problem._sums.max_diagonal_samples
    has_diagonal = problem.traits.has_diagonal
    if isinstance(problem._precond, str):  # beside factors it may be that nobody has looked yet
        has_diagonal = problem._sums.diagonal is not None
    traits = replace(problem.traits, has_diagonal=has_diagonal)
    return Facts(count, samples.mean_weight, traits, kernel, most)


def distributed(problem: TorchProblem, link: Link) -> TorchProblem:
    """The problem of all processes, from the problem that each has made of its own samples.

    One process alone has the sums already: its problem is the one that it would have without a
    group, with the same kernels and graphs, and no message is sent.
    """
    if link.size == 1:
        samples = problem._sums.samples
        assert isinstance(samples, Samples)
        samples.check_weights()
        return problem
    whole = spread(problem, link, DistributedProblem, ReducedSums)
    whole.team = link
    return whole


def spread(
    problem: TorchProblem,
    link: Link,
    kind: type[P],
    sums_kind: type[Shares],
    *,
    has: bool = True,
) -> P:
    """A problem over the samples of all processes; unless it `has` samples here, without those.

    `problem` is the one that this process has made of its own samples.
    """
    sums, samples = problem._sums, problem._sums.samples
    assert isinstance(samples, Samples)
    facts = link.gathered(facts_of(problem, samples, samples.n if has else 0))
    sizes = [fact.samples for fact in facts]
    n = sum(sizes)
    samples.set_mean_weight(sum(fact.mean_weight * (fact.samples / n) for fact in facts))
    samples.check_weights()
    traits = joint_traits(facts)
    most = min(fact.max_diagonal_samples for fact in facts)
    precond, seed = link.from_first(problem._precond), link.from_first(sums.seed)
    sums.seed = seed + link.rank  # dropout masks and drawn labels differ between processes
    return made(
        kind,
        **{
            **vars(problem),
            "x0": link.from_first(problem.x0),
            "subsets": Subsets(n),
            "traits": traits,
            "_precond": precond if traits.has_diagonal else None,
            "_matrix": problem._matrix if traits.has_matrix else None,
            "_rows": problem._rows if traits.has_jacobian else None,
            "_sums": sums_kind(sums, Shards(samples, sizes, link.rank), link, seed, most),
        },
    )


def joint_traits(facts: Sequence[Facts]) -> Traits:
    """What holds in all processes: their samples may have shown different things.

    All of them get the same, as these decide how a run goes. Costs are those of all samples: what
    is sent is not counted.
    """
    traits = [fact.traits for fact in facts]
    alike = len({fact.kernel for fact in facts}) == 1
    has_matrix = alike and traits[0].has_matrix
    return replace(
        traits[0],
        nonlinear=any(each.nonlinear for each in traits),
        has_diagonal=all(each.has_diagonal for each in traits),
        has_factors=all(each.has_factors for each in traits),
        gradient_travels=True,
        has_matrix=has_matrix,
        matrix_cost=max(each.matrix_cost or 0.0 for each in traits) if has_matrix else None,
        has_jacobian=alike and all(each.has_jacobian for each in traits),
        matrix_memory=least([each.matrix_memory for each in traits]),
        product_cost=least([each.product_cost for each in traits]),
    )


def least(numbers: Sequence[float | None]) -> float | None:
    """The least of some numbers; None where one of them is not known."""
    known = [number for number in numbers if number is not None]
    return min(known) if len(known) == len(numbers) else None
