"""The corrected Gauss-Newton step of a sum of squares (``_ksd/damped_step.py``) as a kind."""

from __future__ import annotations

import logging
from functools import partial

from ksdmin._ksd.damped_step import damped_step
from ksdmin._ksd.rules.damped_step import DampedStep
from ksdmin._ksd.steps.kind import Offer, Proposal, Turn
from ksdmin._problem.arrays import is_out_of_memory
from ksdmin._problem.values import changed

log = logging.getLogger("ksdmin")


class GaussNewtonStep:
    """A step from the rows of the Jacobian: only where gradient and search are of one set."""

    name = "gauss-newton"

    def offer(self, turn: Turn) -> Offer | None:
        """A step of this kind, where there is room for the rows."""
        _, _, state, costs = turn
        if costs is None or not costs.rows or state.C_is_other:
            return None
        return Offer(partial(self._propose, turn)) if state.rules.damped_step.allowed else None

    def _propose(self, turn: Turn) -> Proposal:
        """The step; none where there is no Jacobian after all, or memory is too small.

        In the latter case there is none in the next iterations either. Several processes would have
        to agree on that: there it is an error.
        """
        run, evaluator, state, costs = turn
        try:
            return Proposal(state, damped_step(run, evaluator, state, costs))
        except Exception as error:
            if run.team.size > 1 or not is_out_of_memory(error):
                raise
        # Outside of `except`: the traceback holds on to what was computed.
        log.warning(
            "out of memory: from here on steps have Krylov spaces, not the rows of a Jacobian"
        )
        rules = changed(state.rules, damped_step=DampedStep.off())
        return Proposal(changed(state, rules=rules), None)
