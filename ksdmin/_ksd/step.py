"""Algorithm 3, Krylov Subspace Descent: the step.

Letters as in the paper: sets A, B, C; gradient g, preconditioner D, basis V, curvature H_bar
within it, search directions d_prev.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ksdmin._ksd.adapt import adjust_damping, learn, note_progress, refine_arithmetic
from ksdmin._ksd.affordable import step_costs
from ksdmin._ksd.chooser import proposal
from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.sets import next_sets, resize_sets
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._ksd.steps.kind import Turn
from ksdmin._ksd.steps.levenberg_marquardt import fit_step
from ksdmin._ksd.steps.quasi_newton import gradient_error
from ksdmin._problem.arrays import Space
from ksdmin._problem.values import changed, made
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.run import write_record


def step(run: KSDRun, state: KSDState) -> KSDState:
    """One iteration of Algorithm 3: its lines 6 to 13, then lines 3 to 5 of the next.

    A pure function of `run` and `state`: called twice, it returns the same next state.
    """
    if state.fit is not None:
        return fit_step(run, state, state.fit)
    with run.evaluating(state.ledger, limited=True) as evaluator:
        turn = Turn(run, evaluator, state, step_costs(run, evaluator, state))
        (state, trial), forecast = proposal(turn)  # Alg. 3, lines 6 to 12
        if trial is None:
            return changed(state, ledger=evaluator.ledger)
        if run.sampled:  # what was found on samples must be judged first
            evaluator.let_finish()
        sampling = next_sets(run, state, trial) if run.sampled else state.sampling  # line 3
        there = evaluate(run, evaluator, state, trial, sampling.sets.A)  # lines 13, 4, 5
        before = value_before(run, evaluator, state.here, trial, there)
        outcome = judge_step(run, evaluator, state, trial, before, there, turn.costs)
        rules = note_progress(state.rules, outcome)
        after = accept_or_refuse(run, state, trial, there, outcome, rules)
        if run.sampled:
            after = resize_sets(run, evaluator, after, sampling, outcome, there)
        if evaluator.traits.has_finer_arithmetic:
            after = refine_arithmetic(run, evaluator, state, after, outcome)
        if run.sampled:
            after = adjust_damping(state, after, outcome)
        record = step_record(evaluator, after, trial, outcome)
        model, choice = learn(run, state, after, record, trial, there, outcome, forecast)
        rules = after.rules
        warned = after.warned
        if trial.basis is not None and not warned:
            warned = warn_if_asymmetric(run, evaluator, trial.basis)
        return changed(
            after,
            record=record,
            model=model,
            rules=rules if choice is rules.quasi_newton else changed(rules, quasi_newton=choice),
            warned=warned,
            ledger=evaluator.ledger,
        )


def evaluate(run: KSDRun, evaluator: Evaluator, state: KSDState, trial: Trial, A: Any) -> Evaluated:
    """Evaluate the new point; nothing new is computed if the search has just evaluated it on A.

    A quasi-Newton step keeps the old diagonal: a new one would cost as much as the step. After a
    step from a matrix there is none until a Krylov space needs it.
    """
    of_model, here = trial.is_of_model, state.here
    kept = here.diagonal if of_model else None
    wanted = evaluator.traits.has_diagonal and not rests_on_matrix(state, trial)
    missing = wanted and not of_model
    value, gradient = trial.value, trial.gradient
    of_A = state.sampling.sets.C is A or (of_model and here.idx is A)
    if of_A and gradient is not None and not missing:
        there = made(Evaluated, x=trial.x, idx=A, value=value, gradient=gradient, diagonal=kept)
    else:
        there = evaluator.evaluate(trial.x, A, diagonal=missing or kept is not None)
    if not run.sampled:
        return there
    return run.confirm_on_whole_set(evaluator, there, state.first_norm)


def rests_on_matrix(state: KSDState, trial: Trial) -> bool:
    """Whether the step used a matrix, which has a diagonal of its own."""
    return trial.has_factor or trial.is_gauss_newton or state.model.base is not None


def value_before(
    run: KSDRun, evaluator: Evaluator, here: Evaluated, trial: Trial, there: Evaluated
) -> float:
    """The value before the step, on the samples of the value after it; NaN: not comparable."""
    if trial.d is None:
        return there.value
    if here.idx is there.idx:
        return here.value
    return evaluator.value(here.x, there.idx) if run.preset.compares else np.nan


def step_record(evaluator: Evaluator, state: KSDState, trial: Trial, outcome: Outcome) -> Record:
    """The row of this iteration in the history."""
    return write_record(
        evaluator,
        state.record.iteration + 1,
        state.here,
        state.gradient_norm,
        state.sampling.sets,
        step_norm=outcome.step_norm,
        dim=trial.dim,
        inner_iterations=trial.inner_iterations,
        accepted=outcome.accepted,
        kind=trial.kind,
    )


def warn_if_asymmetric(run: KSDRun, evaluator: Evaluator, basis: Basis) -> bool:
    """Warn of a product that is not symmetric; one triangle of V H V^T is used."""
    if evaluator.product_error:
        return False
    asymmetry = basis.asymmetry
    if asymmetry <= MIN_REMAINDER * run.space.eps**0.5:  # the error of products made of differences
        return False
    warnings.warn(
        f"The curvature product is not symmetric: v^T H u and u^T H v differ by "
        f"{asymmetry:.1e} of the largest entry. Check hess or hessp against differences of "
        "the gradient (scipy.optimize.check_grad helps).",
        RuntimeWarning,
        stacklevel=2,
    )
    return True


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
    of_model, products = trial.is_of_model, trial.products and trial.products_to(there)
    whole_curvature = not of_model and trial.has_whole_curvature
    step_norm, gradient_norm, error = 0.0, np.nan, 0.0
    if accepted and products is not None:
        step_norm, gradient_norm = products.step_norm, products.gradient_norm
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
        slope_correction=slope_correction(run.space, here, trial, actual, there)
        if run.sampled
        else 0.0,
        noise=noise,
        value_noise=evaluator.noise * abs(before if compared else here.value),
        gradient_noise=evaluator.gradient_error * abs(value),
        gradient_error=error,
        compared=compared,
        accepted=accepted,
        moved=moved,
        slope_is_hidden=trial.slope_is_hidden,
        new_curvature=not of_model,
        whole_curvature=whole_curvature,
        without_products="krylov" in run.off,
        last_resort=not whole_curvature and not gauss_newton_steps_are_left(state, costs),
        newton_reduction=trial.newton_reduction if whole_curvature else np.nan,
        value=value,
        work=np.nan if costs is None else work(evaluator, state, trial, costs),
        damping=trial.damping,
        step_norm=step_norm,
        gradient_norm=gradient_norm,
        previous_gradient_norm=state.gradient_norm,
    )


def gauss_newton_steps_are_left(state: KSDState, costs: Costs | None) -> bool:
    """Whether a Gauss-Newton step may come after this one."""
    return costs is not None and costs.rows > 0 and state.rules.gauss_newton.allowed


def work(evaluator: Evaluator, state: KSDState, trial: Trial, costs: Costs) -> float:
    """What the step has cost, by the cost model."""
    evaluations = evaluator.counts.nfev - state.ledger.counts.nfev
    if trial.damping is not None:
        return costs.with_rank(trial.damping.rank).gauss_newton(evaluations)
    if trial.is_of_model:
        return evaluations * costs.gradient + costs.call_cost
    space = costs.whole_curvature if trial.has_whole_curvature else costs.krylov(trial.dim)
    return evaluations * costs.gradient + space


def slope_correction(
    space: Space, here: Evaluated, trial: Trial, actual: float, there: Evaluated
) -> float:
    """How much steeper the step goes down on the samples of the new value than on the old ones.

    The slope on the new samples is that of the parabola through the two values and the new
    gradient. The gradient of few samples is partly noise, which must not count as an error of the
    model.
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
