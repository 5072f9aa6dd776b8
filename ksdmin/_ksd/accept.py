"""Is the step taken?  Its predicted and its actual reduction, and the state on either answer."""

from __future__ import annotations

import numpy as np

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.hidden_slope import gradient_error
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._problem.arrays import Space
from ksdmin._problem.values import changed, made
from ksdmin._run.evaluator import Evaluated, Evaluator


def judge_step(
    run: KSDRun,
    evaluator: Evaluator,
    state: KSDState,
    trial: Trial,
    before: float,
    there: Evaluated,
    costs: Costs | None,
) -> Outcome:
    """The outcome of the step to `there`; `before` is the value at `here` on the same samples."""
    here, value, actual = state.here, there.value, before - there.value
    compared, moved = before == before, trial.d is not None
    noise = evaluator.noise * max(abs(before), abs(value))
    accepted = run.preset.accepts(actual, noise)
    of_model, measured = trial.is_of_model, trial.measured and trial.measured_to(there)
    exact = not of_model and trial.is_exact
    step_norm, gradient_norm, error = 0.0, np.nan, 0.0
    if accepted and measured is not None:
        step_norm, gradient_norm = measured.step_norm, measured.gradient_norm
    elif accepted:
        step_norm = run.space.norm(trial.d) if moved else 0.0
        gradient_norm = run.stationarity(there.x, there.gradient)
    if evaluator.gradient_error:
        error = gradient_error(run, evaluator, there, trial.steepest)
    return made(
        Outcome,
        actual=actual,
        predicted_on_C=trial.predicted,
        model_reduction=trial.model_reduction,
        slope_correction=slope_correction(run.space, here, trial, actual, there),
        noise=noise,
        value_noise=evaluator.noise * abs(before if compared else here.value),
        gradient_noise=evaluator.gradient_error * abs(value),
        gradient_error=error,
        compared=compared,
        accepted=accepted,
        moved=moved,
        slope_is_hidden=trial.slope_is_hidden,
        measured=not of_model,
        exact=exact,
        without_products="krylov" in run.off,
        last_resort=not exact and (costs is None or not damped_steps_are_left(state, costs)),
        newton_reduction=trial.newton_reduction if exact else np.nan,
        value=value,
        work=np.nan if costs is None else work(evaluator, state, trial, costs),
        damping=trial.damping,
        step_norm=step_norm,
        gradient_norm=gradient_norm,
        previous_gradient_norm=state.gradient_norm,
    )


def damped_steps_are_left(state: KSDState, costs: Costs) -> bool:
    """Whether a damped step may come after this one."""
    return costs.rows > 0 and state.rules.damped_step.allowed


def work(evaluator: Evaluator, state: KSDState, trial: Trial, costs: Costs) -> float:
    """What the step has cost, by the cost model."""
    evaluations = evaluator.counts.nfev - state.ledger.counts.nfev
    if trial.damping is not None:
        return costs.with_rank(trial.damping.rank).damped(evaluations)
    if trial.is_of_model:
        return evaluations * costs.gradient + costs.call_cost
    space = costs.exact if trial.is_exact else costs.krylov(trial.dim)
    return evaluations * costs.gradient + space


def slope_correction(
    space: Space, here: Evaluated, trial: Trial, actual: float, there: Evaluated
) -> float:
    """By how much the step goes down steeper on the samples of the new value than on the old.

    The slope that they have is that of the parabola through the two values and the new gradient. A
    gradient of few samples is noise in part: that must not pass for an error of the model.
    """
    if there.idx is here.idx or trial.d is None:
        return 0.0
    slope = -2 * actual - float(space.inner(there.gradient, trial.d))
    return float(space.inner(here.gradient, trial.d)) - slope


def accept_or_refuse(
    run: KSDRun,
    state: KSDState,
    trial: Trial,
    there: Evaluated,
    outcome: Outcome,
    rules: Rules,
) -> KSDState:
    """The state at the end of the step if it is taken, or else at its start."""
    if not outcome.accepted:
        return changed(state, last_decrease=np.nan, rules=rules)
    d_prev = (trial.d, *state.d_prev)[: run.dims.memory] if outcome.moved else state.d_prev
    return changed(
        state,
        here=there,
        d_prev=d_prev,
        gradient_norm=outcome.gradient_norm,
        last_decrease=outcome.actual if outcome.moved else np.nan,
        rules=rules,
    )
