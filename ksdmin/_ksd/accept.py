"""Is the step taken?  Its predicted and its actual reduction, and the state on either answer."""

from __future__ import annotations

import numpy as np

from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluated, Evaluator


def judge_step(
    run: KSDRun,
    evaluator: Evaluator,
    state: KSDState,
    trial: Trial,
    before: float,
    there: Evaluated,
) -> Outcome:
    """The outcome of the step to `there`; `before` is the value at `here` on the same samples."""
    here, actual = state.here, before - there.value
    moved = trial.d is not None
    outcome = Outcome(
        actual=actual,
        predicted_on_C=trial.predicted,
        model_reduction=trial.model_reduction,
        slope_correction=slope_correction(here, trial, actual, there),
        noise=evaluator.noise * max(abs(before), abs(there.value)),
        value_noise=evaluator.noise * abs(here.value if np.isnan(before) else before),
        gradient_noise=evaluator.gradient_error * abs(there.value),
        gradient_error=gradient_error(run, evaluator, there, trial.basis),
        compared=not np.isnan(before),
        moved=moved,
        measured=trial.basis.measured,
        space_is_full=trial.basis.full,
        exact=trial.basis.exact,
        newton_reduction=trial.basis.newton_decrease if trial.basis.exact else np.nan,
        previous_gradient_norm=state.gradient_norm,
    )
    if not run.preset.accept(outcome):
        return changed(outcome, accepted=False)
    return changed(
        outcome,
        gradient_norm=run.stationarity(there.x, there.gradient),
        step_norm=run.space.norm(trial.d) if moved else 0.0,
    )


def gradient_error(run: KSDRun, evaluator: Evaluator, there: Evaluated, basis: Basis) -> float:
    """The error of a gradient made of differences: the value's rounding, the curvature's share."""
    if not evaluator.gradient_error:
        return 0.0
    steep = float(np.abs(basis.H_bar).max()) if basis.dim else 0.0
    scale = max(1.0, run.space.max_abs(there.x))
    return evaluator.gradient_error * (abs(there.value) + scale * steep / 2)


def slope_correction(here: Evaluated, trial: Trial, actual: float, there: Evaluated) -> float:
    """By how much the step goes down steeper on the samples of the new value than on the old.

    The slope that they have is that of the parabola through the two values and the new gradient. A
    gradient of few samples is noise in part: that must not pass for an error of the model.
    """
    if there.idx is here.idx or trial.d is None:
        return 0.0
    slope = -2 * actual - float(there.gradient @ trial.d)
    return float(here.gradient @ trial.d) - slope


def accept_or_refuse(
    run: KSDRun, state: KSDState, trial: Trial, there: Evaluated, outcome: Outcome
) -> KSDState:
    """The state at the end of the step if it is taken, or else at its start."""
    if not outcome.accepted:
        return changed(state, last_decrease=np.nan)
    d_prev = (trial.d, *state.d_prev)[: run.dims.memory] if outcome.moved else state.d_prev
    return changed(
        state,
        here=there,
        d_prev=d_prev,
        gradient_norm=outcome.gradient_norm,
        last_decrease=outcome.actual if outcome.moved else np.nan,
    )
