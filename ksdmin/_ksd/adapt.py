"""How the rules go on after a step, and what they change: arithmetic, search, model.

Every rule's `after` is called here. The order matters: the sizes of the sets depend on the stall,
the damping on the new sets, the choice of quasi-Newton steps on what all of it has cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.rules.damping import limits
from ksdmin._ksd.rules.quasi_newton import Forecast, QuasiNewtonChoice, StepTaken
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._problem.values import changed, made
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Evaluator


def note_progress(rules: Rules, outcome: Outcome) -> Rules:
    """What the next space may be, and whether the run has stalled."""
    gauss_newton = rules.gauss_newton.after(outcome)
    if outcome.work > 0:
        damped = outcome.damping is not None
        gained = outcome.accepted and outcome.actual > outcome.noise
        contest = rules.contest.after(
            damped, outcome.actual if gained else 0.0, outcome.work, damped and gauss_newton.falls
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


def reevaluate(run: KSDRun, evaluator: Evaluator, state: KSDState, A: Any) -> KSDState:
    """The state at the same point for another function: of other samples, or with less rounding."""
    here = evaluator.evaluate(state.here.x, A, diagonal=state.here.diagonal is not None)
    norm = run.stationarity(here.x, here.gradient)
    rules = changed(state.rules, stall=state.rules.stall.restarted(norm))
    return changed(state, here=here, gradient_norm=norm, last_decrease=np.nan, rules=rules)


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
