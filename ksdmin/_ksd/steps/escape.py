"""Escape from saddle points and maxima, along negative curvature.

Problem: at x the gradient vanishes. Find a direction z with z^T H z < 0, if a few products show
one, and a lower point along it.

Algorithm: a short Krylov space from a fixed vector that has nothing to do with the problem, with
the quasi-Newton model as preconditioner. In its scaling all curvature seen so far is about one, so
that a negative one stands out after two or three products.
"""

from __future__ import annotations

import numpy as np

from ksdmin._ksd.factor import eigenvectors
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis, krylov_basis
from ksdmin._ksd.line_search import MAX_FACTOR, PATIENCE
from ksdmin._ksd.outcome import Trial
from ksdmin._ksd.state import KSDRun, KSDState, reevaluate
from ksdmin._problem.arrays import Array
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator
from ksdmin._run.run import write_record

NAME = "escape"


def escape(run: KSDRun, state: KSDState) -> tuple[KSDState, bool]:
    """The state after a step down from a saddle point, and whether there was one.

    If there was none, only the counts of the state change. Where all differences of `fun` are zero,
    finer ones may show a slope, and the run goes on with that.
    """
    spent = run.budget.spent(state.ledger.counts) is not None
    over = spent or state.record.iteration >= run.maxiter
    if state.fit is not None:  # the Gauss-Newton model has no negative curvature
        return state, False
    if not over and not run.space.max_abs(state.here.gradient):
        state = with_finer_differences(run, state)
        if state.gradient_norm > run.gradient_target(state.first_norm):
            return state, True
    if not run.applies(NAME) or state.curvature_is_sampled or over or run.box is not None:
        return state, False
    with run.evaluating(state.ledger, limited=True) as evaluator:
        trial = step_down(run, evaluator, state)
        after = state if trial is None else after_escape(run, evaluator, state, trial)
        return changed(after, ledger=evaluator.ledger), trial is not None


def with_finer_differences(run: KSDRun, state: KSDState) -> KSDState:
    """The state with a gradient by finer differences, if there are any."""
    with run.evaluating(state.ledger, limited=True) as evaluator:
        allowed = evaluator.gradient_error and state.rules.finer_arithmetic.allowed
        if allowed and evaluator.refine():
            state = reevaluate(run, evaluator, state, state.here.idx)
        return changed(state, ledger=evaluator.ledger)


def step_down(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Trial | None:
    """A step along negative curvature; None if none was found."""
    basis = probe(run, evaluator, state)
    if basis is None or basis.dim == 0 or not basis.finite:
        return None
    values, E = eigenvectors(basis.H_bar)
    error = max(run.space.eps**0.5, MIN_REMAINDER * evaluator.product_error)
    if not values[0] < -error * np.abs(values).max():
        return None
    z = run.space.combine(basis.V, E[:, 0])
    length = run.space.norm(z)
    length = -length if float(run.space.inner(state.here.gradient, z)) > 0 else length  # downhill
    return descend(run, evaluator, state, z / length, -float(values[0]) / length**2, basis)


def probe(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Basis | None:
    """The curvature outside the directions that the model knows; None if it knows all."""
    space, model = run.space, state.model
    anything = space.to_device(np.random.default_rng(0).standard_normal(space.n))
    unseen, dimensions = model.beyond(space, space.taken(anything))
    if dimensions == 0:
        return None
    product = evaluator.curvature(state.here.x, state.sets.B)
    K = min(PATIENCE, dimensions)
    P = model.preconditioner(space)
    return krylov_basis(space, unseen, P, product, (), K, lambda _: False)


def descend(
    run: KSDRun, evaluator: Evaluator, state: KSDState, z: Array, curvature: float, basis: Basis
) -> Trial | None:
    """A lower point along z; None if rounding hides the reduction, or the step.

    It is lower by at least a tenth of what the curvature predicts. The first trial has a tenth of
    the length of x, and each further one is ten times shorter.
    """
    here = state.here
    size = max(1.0, run.space.norm(here.x))
    t = size / MAX_FACTOR
    while t > run.space.eps * size:
        predicted = curvature * t**2 / 2
        if predicted <= evaluator.noise * abs(here.value) or evaluator.spent():
            return None
        x = here.x + t * z
        value = evaluator.value(x, here.idx)
        if value <= here.value - predicted / MAX_FACTOR:
            return Trial(
                *(NAME, x, t * z, value, None, predicted, predicted, 0, basis.dim), basis=basis
            )
        t /= MAX_FACTOR
    return None


def after_escape(run: KSDRun, evaluator: Evaluator, state: KSDState, trial: Trial) -> KSDState:
    """The state after the escape: what was adapted on the way to the saddle point starts again."""
    here, rules, d = state.here, state.rules, trial.d
    there = evaluator.evaluate(trial.x, here.idx, diagonal=here.diagonal is not None)
    norm = run.stationarity(there.x, there.gradient)
    record = write_record(
        evaluator,
        state.record.iteration + 1,
        there,
        norm,
        state.sets,
        step_norm=run.space.norm(trial.d),
        dim=trial.dim,
        kind=NAME,
    )
    after = changed(
        state,
        here=there,
        d_prev=(d, *state.d_prev)[: run.dims.memory],
        gradient_norm=norm,
        last_decrease=here.value - there.value,
        record=record,
    )
    return after.with_rules(
        forcing=rules.forcing.restarted(),
        quasi_newton=rules.quasi_newton.withdrawn(),
        stall=rules.stall.restarted(norm),
    )
