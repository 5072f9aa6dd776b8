"""A problem whose samples are spread over several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.distributed.sums import ReducedSums, Shards, Shares
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.values import changed


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
    return spread(problem, link, ReducedSums)


def spread(
    problem: TorchProblem, link: Link, kind: type[Shares], *, has: bool = True
) -> TorchProblem:
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
    return changed(
        problem,
        x0=link.from_first(problem.x0),
        subsets=Subsets(n),
        traits=traits,
        _precond=precond if traits.has_diagonal else None,
        _matrix=problem._matrix if traits.has_matrix else None,
        _rows=problem._rows if traits.has_jacobian else None,
        _sums=kind(sums, Shards(samples, sizes, link.rank), link, seed, most),
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
