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
from ksdmin._ksd.outcome import Outcome, Trial
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.rules.damping import limits
from ksdmin._ksd.rules.quasi_newton import Forecast, QuasiNewtonChoice
from ksdmin._ksd.sets import next_sets, resize_sets
from ksdmin._ksd.state import KSDRun, KSDState, reevaluate
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
        costs = step_costs(run, evaluator, state) if state.rules.newton.allowed else None
        turn = Turn(run, evaluator, state, costs)
        found, forecast = proposal(turn)  # Alg. 3, lines 6 to 12
        if found.state is not state:
            state, turn = found.state, turn._replace(state=found.state)
        trial = found.trial
        if trial is None:
            return changed(state, ledger=evaluator.ledger)
        sampling = state.sampling
        if run.sampled:
            evaluator.let_finish()  # what was found on samples must be judged first
            sampling = next_sets(run, state, trial)  # line 3
        there = evaluate(turn, trial, sampling.sets.A)  # lines 13, 4, 5
        outcome = judge_step(turn, trial, there)
        after = accept_or_refuse(run, state, there, outcome)
        if run.sampled:
            after = resize_sets(run, evaluator, after, sampling, outcome, there)
        if evaluator.traits.has_finer_arithmetic:
            after = refine_arithmetic(run, evaluator, state, after, outcome)
        if run.sampled:
            after = adjust_damping(state, after, outcome)
        record = write_record(
            evaluator,
            state.record.iteration + 1,
            after.here,
            after.gradient_norm,
            after.sampling.sets,
            step_norm=outcome.step_norm,
            dim=trial.dim,
            inner_iterations=trial.inner_iterations,
            accepted=outcome.accepted,
            kind=trial.kind,
        )
        model, choice = learn(run, state, after, record, there, outcome, forecast)
        warned = after.warned
        if trial.basis is not None and not warned:
            warned = warn_if_asymmetric(run, evaluator, trial.basis)
        return changed(
            after,
            record=record,
            model=model,
            rules=changed(after.rules, quasi_newton=choice),
            warned=warned,
            ledger=evaluator.ledger,
        )


def evaluate(turn: Turn, trial: Trial, A: Any) -> Evaluated:
    """Evaluate the new point; nothing new is computed if the search has just evaluated it on A.

    A quasi-Newton step keeps the old diagonal: a new one would cost as much as the step. After a
    step from a matrix there is none until a Krylov space needs it.
    """
    run, evaluator, state, _ = turn
    of_model, here, gradient = trial.is_of_model, state.here, trial.gradient
    kept = here.diagonal if of_model else None
    missing = False
    if evaluator.traits.has_diagonal and not of_model:
        of_matrix = trial.has_factor or trial.is_gauss_newton
        missing = not of_matrix and state.model.base is None
    of_A = state.sampling.sets.C is A or (of_model and here.idx is A)
    if of_A and gradient is not None and not missing:
        x, value = trial.x, trial.value
        there = made(Evaluated, x=x, idx=A, value=value, gradient=gradient, diagonal=kept)
    else:
        there = evaluator.evaluate(trial.x, A, diagonal=missing or kept is not None)
    if not run.sampled:
        return there
    return run.confirm_on_whole_set(evaluator, there, state.first_norm)


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


def judge_step(turn: Turn, trial: Trial, there: Evaluated) -> Outcome:
    """The outcome of the step to `there`."""
    run, evaluator, state, costs = turn
    here, value, model, rounding = state.here, there.value, state.model, evaluator.noise
    moved, new_curvature = trial.d is not None, not trial.is_of_model
    before = here.value if moved else value
    if moved and here.idx is not there.idx:  # on the samples of the new value; NaN: not comparable
        before = evaluator.value(here.x, there.idx) if run.preset.compares else np.nan
    compared, actual = before == before, before - value
    noise = rounding * max(abs(before), abs(value))
    accepted = run.preset.accepts(actual, noise)
    whole_curvature = new_curvature and trial.has_whole_curvature
    step_norm, gradient_norm, error = 0.0, np.nan, 0.0
    if accepted:
        products = trial.products and trial.products_to(there)
        if products is not None:
            step_norm, gradient_norm = products.step_norm, products.gradient_norm
        else:
            step_norm = run.space.norm(trial.d) if moved else 0.0
            gradient_norm = run.stationarity(there.x, there.gradient)
    if evaluator.gradient_error:
        # The last space need not have had the steepest direction in it.
        steepest = max(trial.steepest, model.steepest(run.space))
        error = gradient_error(run, evaluator, there, steepest)
    correction = slope_correction(run.space, here, trial, actual, there) if run.sampled else 0.0
    rows_are_left = costs is not None and costs.rows > 0 and state.rules.gauss_newton.allowed
    return made(
        Outcome,
        trial=trial,
        actual=actual,
        slope_correction=correction,
        noise=noise,
        value_noise=rounding * abs(before if compared else here.value),
        gradient_noise=evaluator.gradient_error * abs(value),
        gradient_error=error,
        compared=compared,
        accepted=accepted,
        moved=moved,
        new_curvature=new_curvature,
        whole_curvature=whole_curvature,
        of_whole_curvature=whole_curvature or not (new_curvature or model.base is None),
        without_products="krylov" in run.off,
        last_resort=not (whole_curvature or rows_are_left),
        work=np.nan if costs is None else work(turn, trial, costs),
        step_norm=step_norm,
        gradient_norm=gradient_norm,
        previous_gradient_norm=state.gradient_norm,
    )


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


def accept_or_refuse(run: KSDRun, state: KSDState, there: Evaluated, outcome: Outcome) -> KSDState:
    """The state at the end of the step if it is taken, or else at its start."""
    rules = note_progress(state.rules, outcome)
    if not outcome.accepted:
        return changed(state, last_decrease=np.nan, rules=rules)
    d_prev = state.d_prev
    if outcome.moved and run.dims.memory:
        d_prev = (outcome.trial.d, *d_prev)[: run.dims.memory]
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
    forcing, stall = rules.forcing.after(outcome), rules.stall.after(outcome)
    if not rules.newton.allowed:  # the usual case: there is no whole curvature
        return changed(rules, forcing=forcing, stall=stall)
    contest, gauss_newton = rules.contest, rules.gauss_newton.after(outcome)
    if outcome.work > 0:
        gained = outcome.accepted and outcome.actual > outcome.noise
        contest = contest.after(
            outcome.of_whole_curvature,
            outcome.actual if gained else 0.0,
            outcome.work,
            outcome.trial.is_gauss_newton and gauss_newton.falls,
        )
    newton = rules.newton.after(outcome)
    return changed(
        rules,
        forcing=forcing,
        stall=stall,
        newton=newton,
        gauss_newton=gauss_newton,
        contest=contest,
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
        after = after.with_rules(finer_arithmetic=finer)
    if finer.due and evaluator.refine() and not evaluator.moves:
        return reevaluate(run, evaluator, after, after.here.idx)
    return after


def adjust_damping(before: KSDState, after: KSDState, outcome: Outcome) -> KSDState:
    """The damping of the next search: of steps on samples only."""
    sampled = before.curvature_is_sampled or after.curvature_is_sampled
    if not sampled or not outcome.new_curvature:  # a step of the model is not damped
        return after
    if limits(before.damping, outcome):  # a short step must not end the run by ftol or xtol
        after = changed(after, last_decrease=np.nan)
    if not after.curvature_is_sampled:
        return after
    return after.with_rules(damping=after.rules.damping.after(outcome))


def learn(
    run: KSDRun,
    before: KSDState,
    after: KSDState,
    record: Record,
    there: Evaluated,
    outcome: Outcome,
    forecast: Forecast | None,
) -> tuple[QuasiNewton, QuasiNewtonChoice]:
    """The quasi-Newton model after the iteration, and whether the next step may rest on it.

    `record` is the line of the iteration, `forecast` that of the model at its start, None where it
    was not asked.
    """
    choice, old, new, model = after.rules.quasi_newton, before.here, after.here, before.model
    trial = outcome.trial
    if not outcome.new_curvature and new.x is old.x and new.gradient is not old.gradient:
        return model, choice  # the same step again, with a finer gradient
    same = new.x is not old.x and new.idx is old.idx  # whether the step was taken on one set
    start = before.record
    if not before.learns and not trial.has_factor and model.base is None:
        # The products on samples teach nothing of A, but the gradients at both ends of the step do,
        # where both are of the same A. A step that A refuses teaches nothing: a sample that can be
        # separated sends it so far that the curvature there says nothing of the one here.
        if outcome.moved and there.idx is old.idx and there.value < old.value:
            model = learned_from_step(run, before, trial, there)
        same = same and run.subsets.is_full(new.idx)
        return model, choice.after(outcome, start, record, forecast, same, len(model) > 0)
    if trial.basis is not None:
        pair = (trial.d, there.gradient - old.gradient) if same else None
        model = model.with_basis(run.space, trial.basis, pair)
    elif same:
        model = learned_from_step(run, before, trial, there)
    return model, choice.after(outcome, start, record, forecast, same)


def learned_from_step(run: KSDRun, before: KSDState, trial: Trial, there: Evaluated) -> QuasiNewton:
    """The model after the pair of a step."""
    products = trial.products and trial.products_to(there)
    if products is not None:
        return before.model.with_products(run.space, products.pair())
    return before.model.with_pair(run.space, trial.d, there.gradient - before.here.gradient)
