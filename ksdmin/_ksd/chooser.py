"""The chooser: which kind of step comes next. The only place that knows more than one kind."""

from __future__ import annotations

from ksdmin._ksd.rules.trust import Forecast
from ksdmin._ksd.steps.gauss_newton import GaussNewtonStep
from ksdmin._ksd.steps.kind import Proposal, Turn
from ksdmin._ksd.steps.krylov import KrylovStep
from ksdmin._ksd.steps.newton import NewtonStep, serves_more_steps
from ksdmin._ksd.steps.quasi_newton import QuasiNewtonStep

KRYLOV, NEWTON = KrylovStep(), NewtonStep()
QUASI_NEWTON, GAUSS_NEWTON = QuasiNewtonStep(), GaussNewtonStep()


def proposal(turn: Turn) -> tuple[Proposal, Forecast | None]:
    """The next step, of the kind that lately gained most for its cost; and the model's forecast."""
    forecast = None
    K, rules, costs = turn.run.dims.whole_dim, turn.state.rules, turn.costs
    offer = GAUSS_NEWTON.offer(turn)
    if offer is not None and costs is not None and rules.damped_step.worthwhile(costs, K):
        found = offer.propose()
        if found.trial is not None:
            return found, None
        turn = turn._replace(state=found.state)
    offer = QUASI_NEWTON.offer(turn)
    if offer is not None and offer.forecast is not None:
        forecast = offer.forecast
        if pays(turn, offer.forecast):
            return offer.propose(), forecast
    offer = NEWTON.offer(turn)
    if offer is not None and costs is not None:
        reused = serves_more_steps(turn.run, turn.state)
        if rules.exact_space.worthwhile(costs, K, reused=reused):
            found = offer.propose()
            if found.trial is not None:
                return found, forecast
    return KRYLOV.offer(turn).propose(), forecast


def pays(turn: Turn, forecast: Forecast) -> bool:
    """Whether a step along the direction is to be preferred to one with products."""
    state = turn.state
    if state.model.base is not None:
        return True
    trust = state.rules.trust
    if state.curvature_is_sampled:
        return trust.pays_on_samples(state.record, forecast)
    return trust.pays(state.record, forecast)
