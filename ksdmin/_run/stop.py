"""Whether a run is over, and why."""

from __future__ import annotations

import math

from ksdmin._result import Status
from ksdmin._run.fit_tests import FitTests, Held
from ksdmin._run.run import Run
from ksdmin._run.state import State


def verdict(run: Run, state: State) -> Status | None:
    """Why the run ends at `state`; None: it goes on."""
    here, sampling, options = state.here, state.sampling, run.options
    if here.value <= state.lowest and state.record.iteration:
        return Status.UNBOUNDED
    if not math.isfinite(here.value) or not math.isfinite(state.gradient_norm) or state.broken:
        return Status.NOT_FINITE
    best = state.ledger.best
    if best is not None and best[1] <= options.fmin:
        return Status.TARGET
    whole = not run.sampled or run.subsets.is_full(here.idx)
    converged = test_that_holds(run, state) if whole else None
    if converged is not None:
        return converged
    if sampling.exhausted:
        return Status.OUT_OF_SETS
    if state.record.iteration >= run.maxiter:
        return Status.MAXITER
    deterministic = whole and sampling.sets.B is here.idx and sampling.sets.C is here.idx
    spent = run.budget.spent(state.ledger.counts)
    if deterministic and state.stalled:
        return spent or Status.PRECISION_LOSS
    return spent


def test_that_holds(run: Run, state: State) -> Status | None:
    """Which test of convergence holds here: on the whole set."""
    if state.tests_itself:
        held = unit_free_test(run, state)
        if held is not None:
            return Status(held.status)
        relative = run.options.gtol_rel * state.first_norm
        return Status.CONVERGED if 0 < state.gradient_norm <= relative else None
    if state.gradient_norm <= run.gradient_target(state.first_norm):
        return Status.CONVERGED
    return small_change(run, state)


def unit_free_test(run: Run, state: State) -> Held | None:
    """The test free of units that holds; a fit makes its own."""
    here, problem = state.here, state.ledger.problem
    if state.is_fit or not problem.unit_free:
        return state.held
    tests = FitTests.of(run.options)
    g = run.movable(here)(here.gradient)
    cosine = problem.largest_cosine(here.x, here.idx, g, here.value)
    if cosine is None:
        held = tests.of_operator(run.space.max_abs(g), state.first_norm)
    else:
        held = tests.of_point(cosine)
    length, decrease = state.record.step_norm, state.last_decrease
    if held is None and length and not math.isnan(decrease):
        size = run.space.norm(here.x)
        held = tests.of_step(decrease, 0.0, here.value + decrease, length, size)
    if held is None:
        return None
    left = problem.predicted_reduction(here.x, here.idx, g)
    return held if left is None or tests.confirmed(left, here.value) else None


def small_change(run: Run, state: State) -> Status | None:
    """Which of the tests of ftol and xtol holds, of a step that was just taken and may count."""
    options, here, decrease = run.options, state.here, state.last_decrease
    if not state.record.step_norm or math.isnan(decrease):
        return None
    scale = max(abs(here.value), abs(here.value + decrease), 1.0)
    if options.ftol and 0 <= decrease <= options.ftol * scale:
        return Status.FTOL
    limit = options.xtol * max(1.0, run.space.norm(here.x)) if options.xtol else 0.0
    return Status.XTOL if state.record.step_norm <= limit else None
