"""A run of the Hessian-free method: what stays the same, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._options import HFOptions
from ksdmin._problem.arrays import Array
from ksdmin._problem.subsets import Sizes
from ksdmin._run.evaluator import KeptFactors
from ksdmin._run.run import Run, State

PATIENCE = 3  # iterations in a row without a step: the run has stalled


@dataclass(frozen=True)
class HFRun(Run):
    """What stays the same.

    Attributes
    ----------
    options : HFOptions
        The user's.
    sizes : Sizes or None
        Of the sets; None where the user draws them.
    """

    options: HFOptions
    sizes: Sizes | None


@dataclass(frozen=True)
class HFState(State):
    """Where it stands.

    Attributes
    ----------
    damping : float
        Martens' lambda.
    factors : KeptFactors or None
        Kronecker factors for the preconditioner, where the problem has any.
    solution : array or None
        The last end of the conjugate gradients.
    refused : int
        Iterations in a row without a step.
    """

    damping: float
    factors: KeptFactors | None
    solution: Array | None
    refused: int

    @property
    def stalled(self) -> bool:
        """Whether the last iterations found no step."""
        return self.refused >= PATIENCE
