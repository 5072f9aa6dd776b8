"""What every kind of step has in common; and the preconditioner of a step (Algorithm 3, line 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import Trial
from ksdmin._ksd.precond import Preconditioner, of_factors
from ksdmin._ksd.rules.damping import NEGLIGIBLE
from ksdmin._ksd.rules.quasi_newton import Forecast
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator, renewed


class Turn(NamedTuple):
    """What a kind looks at when the next step is chosen and made."""

    # Those of the iteration.
    run: KSDRun
    evaluator: Evaluator
    state: KSDState
    costs: Costs | None  # what the parts of a step cost; None where there is room for no matrix


class Proposal(NamedTuple):
    """A step that was made."""

    state: KSDState  # that of the turn, with what was computed or found out on the way
    trial: Trial | None  # the step; None where it could not be made after all


class Offer(NamedTuple):
    """A step that can be made."""

    propose: Callable[[], Proposal]  # makes it
    forecast: Forecast | None = None  # what it will gain, where the kind can tell


def with_factors(evaluator: Evaluator, state: KSDState) -> KSDState:
    """The state with Kronecker factors for the next Krylov space, if the problem has any.

    The damping of the factors is a small share of that of the search. From 0.001 to 1 the share
    makes little difference to MNIST's auto-encoder, a residual net and a transformer.
    """
    damping, iteration = NEGLIGIBLE * state.damping, state.record.iteration
    factors = renewed(state.factors, evaluator, state.here, damping, iteration)
    return state if factors is state.factors else changed(state, factors=factors)


def first_preconditioner(run: KSDRun, state: KSDState) -> Preconditioner:
    """The diagonal or the Kronecker factors, which the quasi-Newton model builds on."""
    D, factors = state.here.diagonal, state.factors
    if factors is None or factors.damped is None:
        return Preconditioner.diagonal(D)
    return of_factors(run.space, factors.damped)


def preconditioner(run: KSDRun, state: KSDState, *, with_model: bool = True) -> Preconditioner:
    """The diagonal or the Kronecker factors, with the quasi-Newton model and the bounds."""
    model, P = state.model, first_preconditioner(run, state)
    free = None if run.box is None else run.movable(state.here)
    if free is not None and with_model:
        model = model.restricted(run.space, free)
    P = model.preconditioner(run.space, P) if with_model else P
    if free is None:
        return P
    # Without its arrays: made again from these, it would not contain the bounds
    return changed(P, solve=lambda w: free(P.solve(w)), is_diagonal=False, arrays=(), again=None)


def model_preconditions(run: KSDRun, state: KSDState) -> bool:
    """Whether the model preconditions the next Krylov space.

    If the model may cost more than products, it does so only if the last space was too small: the
    model then replaces the missing vectors. On samples its pairs are of A, and the products of B:
    with both, badly conditioned regressions take up to 40% more.
    """
    if state.curvature_is_sampled:
        return False
    last_space = state.rules.quasi_newton.end.dim
    return run.dims.model_is_cheap or last_space >= run.dims.whole_dim
