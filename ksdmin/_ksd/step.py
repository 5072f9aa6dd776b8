"""Algorithm 3, Krylov Subspace Descent: the step.

Letters as in the paper: sets A, B, C; gradient g, preconditioner D, basis V, curvature H_bar
within it, search directions d_prev.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ksdmin._ksd.affordable import step_costs
from ksdmin._ksd.chooser import proposal
from ksdmin._ksd.cost_model import Costs, factorisation
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.rules.damping import limits
from ksdmin._ksd.rules.quasi_newton import Forecast, QuasiNewtonChoice, StepTaken
from ksdmin._ksd.sets import next_sets, resize_sets
from ksdmin._ksd.state import KSDRun, KSDState, Trial, reevaluate
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
        turn = turn._replace(state=state)
        if trial is None:
            return changed(state, ledger=evaluator.ledger)
        if run.sampled:  # what was found on samples must be judged first
            evaluator.let_finish()
        sampling = next_sets(run, state, trial) if run.sampled else state.sampling  # line 3
        there = evaluate(turn, trial, sampling.sets.A)  # lines 13, 4, 5
        outcome = judge_step(turn, trial, value_before(turn, trial, there), there)
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


def evaluate(turn: Turn, trial: Trial, A: Any) -> Evaluated:
    """Evaluate the new point; nothing new is computed if the search has just evaluated it on A.

    A quasi-Newton step keeps the old diagonal: a new one would cost as much as the step. After a
    step from a matrix there is none until a Krylov space needs it.
    """
    run, evaluator, state, _ = turn
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


def value_before(turn: Turn, trial: Trial, there: Evaluated) -> float:
    """The value before the step, on the samples of the value after it; NaN: not comparable."""
    here = turn.state.here
    if trial.d is None:
        return there.value
    if here.idx is there.idx:
        return here.value
    return turn.evaluator.value(here.x, there.idx) if turn.run.preset.compares else np.nan


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


def judge_step(turn: Turn, trial: Trial, before: float, there: Evaluated) -> Outcome:
    """The outcome of the step to `there`; `before` is the value at `here` on the same samples."""
    run, evaluator, state, costs = turn
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
        # The last space need not have had the steepest direction in it.
        steepest = max(trial.steepest, state.model.steepest(run.space))
        error = gradient_error(run, evaluator, there, steepest)
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
        of_whole_curvature=whole_curvature or (of_model and state.model.base is not None),
        without_products="krylov" in run.off,
        last_resort=not whole_curvature and not gauss_newton_steps_are_left(turn),
        newton_reduction=trial.newton_reduction if whole_curvature else np.nan,
        value=value,
        work=np.nan if costs is None else work(turn, trial, costs),
        damping=trial.damping,
        step_norm=step_norm,
        gradient_norm=gradient_norm,
        previous_gradient_norm=state.gradient_norm,
    )


def gauss_newton_steps_are_left(turn: Turn) -> bool:
    """Whether a Gauss-Newton step may come after this one."""
    rows = turn.costs is not None and turn.costs.rows > 0
    return rows and turn.state.rules.gauss_newton.allowed


def work(turn: Turn, trial: Trial, costs: Costs) -> float:
    """What the step has cost, by the cost model; by passes if a matrix is made of products."""
    if costs.of_products:
        passes = turn.evaluator.counts.passes - turn.state.ledger.counts.passes
        factor = factorisation(costs.n, costs.n) if trial.has_whole_curvature else 0.0
        return passes * costs.gradient / 2 + factor
    evaluations = turn.evaluator.counts.nfev - turn.state.ledger.counts.nfev
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


# What adapts: every rule's `after` is called here. The order matters: the sizes of the sets depend
# on the stall, the damping on the new sets, the choice of quasi-Newton steps on what all of it has
# cost.


def note_progress(rules: Rules, outcome: Outcome) -> Rules:
    """What the next space may be, and whether the run has stalled."""
    gauss_newton = rules.gauss_newton.after(outcome)
    if outcome.work > 0:
        damped = outcome.damping is not None
        gained = outcome.accepted and outcome.actual > outcome.noise
        contest = rules.contest.after(
            outcome.of_whole_curvature,
            outcome.actual if gained else 0.0,
            outcome.work,
            damped and gauss_newton.falls,
        )
        rules = changed(rules, contest=contest)
    return changed(
        rules,
        forcing=rules.forcing.after(outcome),
        stall=rules.stall.after(outcome),
        newton=rules.newton.after(outcome),
        gauss_newton=gauss_newton,
    )


def refine_arithmetic(
    run: KSDRun, evaluator: Evaluator, before: KSDState, after: KSDState, outcome: Outcome
) -> KSDState:
    """Finer arithmetic from here on, where that is due.

    Where it is of another dtype, the whole run moves there after the step (`start.py: moved`).
    """
    rules = after.rules
    short = before.damping > 0 and before.rules.damping.initial_phase
    finer = rules.finer_arithmetic.after(
        outcome,
        short_on_purpose=short,
        stalled=rules.stall.stalled,
        gtol=run.gradient_target(before.first_norm),
    )
    if finer is not rules.finer_arithmetic:
        after = changed(after, rules=changed(rules, finer_arithmetic=finer))
    if finer.due and evaluator.refine() and not evaluator.moves:
        return reevaluate(run, evaluator, after, after.here.idx)
    return after


def adjust_damping(before: KSDState, after: KSDState, outcome: Outcome) -> KSDState:
    """The damping of the next search: of steps on samples only."""
    sampled = before.curvature_is_sampled or after.curvature_is_sampled
    if not sampled or not outcome.new_curvature:  # a step of the model is not damped
        return after
    rules = after.rules
    if limits(before.damping, outcome):  # a short step must not end the run by ftol or xtol
        after = changed(after, last_decrease=np.nan)
    if not after.curvature_is_sampled:
        return after
    return changed(after, rules=changed(rules, damping=rules.damping.after(outcome)))


def learn(
    run: KSDRun,
    before: KSDState,
    after: KSDState,
    record: Record,
    trial: Trial,
    there: Evaluated,
    outcome: Outcome,
    forecast: Forecast | None,
) -> tuple[QuasiNewton, QuasiNewtonChoice]:
    """The quasi-Newton model after the iteration, and whether the next step may rest on it.

    `record` is the line of the iteration, `forecast` that of the model at its start, None where it
    was not asked.
    """
    choice, old, new, model = after.rules.quasi_newton, before.here, after.here, before.model
    if not outcome.new_curvature and new.x is old.x and new.gradient is not old.gradient:
        return model, choice  # the same step again, with a finer gradient
    same_function = new.x is not old.x and new.idx is old.idx
    taken = made(
        StepTaken,
        outcome=outcome,
        start=before.record,
        end=record,
        forecast=forecast,
        same_function=same_function,
    )
    if not before.learns and not trial.has_factor and model.base is None:
        model = learned_on_samples(run, before, trial, there)
        of_all = same_function and run.subsets.is_full(new.idx)
        taken = changed(taken, same_function=of_all)
        return model, choice.on_samples(taken, paired=len(model) > 0)
    if trial.basis is not None:
        pair = (trial.d, there.gradient - old.gradient) if same_function else None
        model = model.with_basis(run.space, trial.basis, pair)
    elif same_function:
        model = learned_from_step(run, before, trial, there)
    return model, choice.after(taken)


def learned_on_samples(
    run: KSDRun, before: KSDState, trial: Trial, there: Evaluated
) -> QuasiNewton:
    """The model after a step whose curvature was of a sample, for steps that rest on it.

    The products teach nothing of A, but the gradients at both ends of the step do, where both are
    of the same A. A step that A refuses teaches nothing: a sample that can be separated sends it so
    far that the curvature there says nothing of the one here.
    """
    here = before.here
    if trial.d is None or there.idx is not here.idx:
        return before.model
    if not there.value < here.value:
        return before.model
    return learned_from_step(run, before, trial, there)


def learned_from_step(run: KSDRun, before: KSDState, trial: Trial, there: Evaluated) -> QuasiNewton:
    """The model after the pair of a step."""
    products = trial.products and trial.products_to(there)
    if products is not None:
        return before.model.with_products(run.space, products.pair())
    return before.model.with_pair(run.space, trial.d, there.gradient - before.here.gradient)
