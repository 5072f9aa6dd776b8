"""Kronecker factors that serve several steps of a run."""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._problem.kronecker import DampedFactors
from ksdmin._run.evaluator import Evaluated, Evaluator

# Iterations that the factors of a point serve. Renewed in each, MNIST's auto-encoder is 12% behind
# after 18 seconds on an H200; after twenty (of twice the samples), 5%.
ITERATIONS = 5


@dataclass(frozen=True)
class KeptFactors:
    """The factors of an iteration.

    Attributes
    ----------
    damped : DampedFactors or None
        None where they were of no use: not finite, or all zero.
    iteration : int
        When they were computed.
    """

    damped: DampedFactors | None
    iteration: int


def renewed(
    kept: KeptFactors | None, evaluator: Evaluator, here: Evaluated, damping: float, iteration: int
) -> KeptFactors | None:
    """The factors for a step from `here`: those that are `kept`, or new ones with this damping.

    None where the problem has none.
    """
    if not evaluator.traits.has_factors:
        return None
    if kept is not None and iteration < kept.iteration + ITERATIONS:
        return kept
    factors = evaluator.factors(here.x, here.idx)
    return KeptFactors(factors.damped(evaluator.space, damping + factors.penalty), iteration)
