"""What every kind of step has in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.rules.trust import Forecast
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._run.evaluator import Evaluator


class Turn(NamedTuple):
    """What a kind looks at when the next step is chosen and made.

    Attributes
    ----------
    run, evaluator, state
        Those of the iteration.
    costs : Costs or None
        What the parts of a step cost; None where there is room for no matrix.
    """

    run: KSDRun
    evaluator: Evaluator
    state: KSDState
    costs: Costs | None


class Proposal(NamedTuple):
    """A step that was made.

    Attributes
    ----------
    state : KSDState
        That of the turn, with what was computed or found out on the way.
    trial : Trial or None
        The step; None where it could not be made after all.
    """

    state: KSDState
    trial: Trial | None


class Offer(NamedTuple):
    """A step that can be made.

    Attributes
    ----------
    propose : callable
        Makes it.
    forecast : Forecast or None
        What it will gain, where the kind can tell.
    """

    propose: Callable[[], Proposal]
    forecast: Forecast | None = None


class Kind(Protocol):
    """A kind of step.

    Its memory (a damping, the age of a matrix, a width) is a frozen value among the rules of the
    state, which every outcome informs.

    Attributes
    ----------
    name : str
        As in ``res.history["kind"]`` and in the option ``without``.
    """

    name: str

    def offer(self, turn: Turn) -> Offer | None:
        """A step of this kind; None where none can be made here."""
