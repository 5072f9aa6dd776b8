"""The Krylov step: a search within the space of Algorithm 2, made of products on the set B."""

from __future__ import annotations

from functools import partial

from ksdmin._ksd.krylov import Basis, Growth, krylov_basis
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.steps.kind import (
    Offer,
    Proposal,
    Turn,
    model_preconditions,
    preconditioner,
    with_factors,
)
from ksdmin._ksd.steps.search import search
from ksdmin._ksd.steps.widening import largest_dim, wide_enough
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator


class KrylovStep:
    """The paper's own kind of step; it can always be made."""

    name = "krylov"

    def offer(self, turn: Turn) -> Offer:
        """A step of this kind."""
        return Offer(partial(self._propose, turn))

    def _propose(self, turn: Turn) -> Proposal:
        """The step, and the state with what the preconditioner needed.

        No step if the first product is not finite: the state is broken.
        """
        run, evaluator, state, costs = turn
        if evaluator.traits.has_diagonal and state.here.diagonal is None:
            here = evaluator.evaluate(state.here.x, state.here.idx, diagonal=True)
            state = changed(state, here=here)
        state = with_factors(evaluator, state)
        basis = krylov_space(run, evaluator, state)  # Alg. 3, line 6
        if not basis.finite and basis.dim == 0:
            return Proposal(changed(state, broken=True), None)
        return Proposal(state, search(self.name, run, evaluator, state, basis, costs))


def krylov_space(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Basis:
    """The Krylov space of Algorithm 2, on the set B."""
    # An old matrix would mislead, since products were less work.
    state = changed(state, model=state.model.without_base())
    here, rules = state.here, state.rules
    P = preconditioner(run, state, with_model=model_preconditions(run, state))
    free = run.movable(here)
    product = evaluator.curvature(here.x, state.sets.B)
    wide = wide_enough(run, evaluator, state)

    def enough(growth: Growth) -> bool:
        return rules.forcing.satisfied(growth) or evaluator.spent() or wide(growth)

    return krylov_basis(
        run.space,
        free(here.gradient),
        P,
        product if run.box is None else lambda v: free(product(v)),
        # A model already knows the curvature along them.
        () if state.learns or P.times is None else [free(d) for d in state.d_prev],
        largest_dim(run, state),
        enough,
        # If the space will probably reach K, the device need not wait for the host.
        ahead=run.space.remote and (rules.forcing.value is None or state.curvature_is_sampled),
        noise=max(evaluator.product_error, evaluator.traits.noise or 0.0),
        rows_of=run.workspace.rows,
    )
